"""Just enough of Parquet to count a file's rows: the footer's third field, in Thrift's compact
encoding."""

from pathlib import Path


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def byte(self):
        self.at += 1
        return self.data[self.at - 1]

    def varint(self):
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def integer(self):
        value = self.varint()
        return value >> 1 ^ -(value & 1)

    def skip(self, kind):
        if kind in (1, 2):  # booleans are in the type itself
            return
        if kind == 3:
            self.at += 1
        elif kind in (4, 5, 6):
            self.varint()
        elif kind == 7:
            self.at += 8
        elif kind == 8:
            size = self.varint()  # not `+=` at once, which would read self.at too early
            self.at += size
        elif kind in (9, 10):
            head = self.byte()
            size = head >> 4
            if size == 15:
                size = self.varint()
            for _ in range(size):
                # In a list booleans are bytes.
                self.skip(3 if head & 15 in (1, 2) else head & 15)
        elif kind == 12:
            for _, field in self.fields():
                self.skip(field)
        else:
            raise ValueError(f"type {kind} in a Parquet footer")

    def fields(self):
        number = 0
        while (head := self.byte()) != 0:
            number = number + (head >> 4) if head >> 4 else self.integer()
            yield number, head & 15


def rows(file):
    """Rows of a Parquet file."""
    data = Path(file).read_bytes()
    size = int.from_bytes(data[-8:-4], "little")
    if data[-4:] != b"PAR1" or size + 8 > len(data):
        raise ValueError(f"{file} is no Parquet file")
    reader = Reader(data[-8 - size : -8])
    for number, kind in reader.fields():
        if number == 3:
            return reader.integer()
        reader.skip(kind)
    raise ValueError(f"{file} does not say how many rows it has")


def tables(recording):
    """By table: rows and bytes of a recording, whatever its segments."""
    found = {}
    for file in sorted(Path(recording).glob("seg-*/*.parquet")):
        entry = found.setdefault(file.stem, {"rows": 0, "bytes": 0})
        entry["rows"] += rows(file)
        entry["bytes"] += file.stat().st_size
    return found
