"""Reads the pictures that Chromium makes: PNG, 8 bits a channel, not interlaced."""

import struct
import zlib

SIGNATURE = b"\x89PNG\r\n\x1a\n"


class Picture:
    """A picture's size and rows of pixels."""

    def __init__(self, data):
        if not data.startswith(SIGNATURE):
            raise ValueError("this is no PNG")
        packed = b""
        at = len(SIGNATURE)
        while at < len(data):
            length, kind = struct.unpack(">I4s", data[at : at + 8])
            body = data[at + 8 : at + 8 + length]
            at += length + 12
            if kind == b"IHDR":
                self.width, self.height, depth, colour = struct.unpack(">IIBB", body[:10])
                if depth != 8 or colour not in (2, 6) or body[12]:
                    raise ValueError("another kind of PNG")
                self.channels = 3 if colour == 2 else 4
            elif kind == b"IDAT":
                packed += body
        self.rows = self._rows(zlib.decompress(packed))

    def _rows(self, raw):
        size, stride = self.channels, self.width * self.channels
        rows = []
        before = bytearray(stride)
        for y in range(self.height):
            start = y * (stride + 1)
            kind, row = raw[start], bytearray(raw[start + 1 : start + 1 + stride])
            if kind == 1:
                for i in range(size, stride):
                    row[i] = (row[i] + row[i - size]) & 255
            elif kind == 2:
                for i in range(stride):
                    row[i] = (row[i] + before[i]) & 255
            elif kind == 3:
                for i in range(stride):
                    left = row[i - size] if i >= size else 0
                    row[i] = (row[i] + (left + before[i]) // 2) & 255
            elif kind == 4:
                for i in range(stride):
                    left = row[i - size] if i >= size else 0
                    corner = before[i - size] if i >= size else 0
                    row[i] = (row[i] + paeth(left, before[i], corner)) & 255
            rows.append(bytes(row))
            before = row
        return rows

    def share(self, colour):
        """How many of the pixels, in a hundred, have about that colour."""
        size = self.channels
        pixels = [row[i : i + 3] for row in self.rows for i in range(0, len(row), size)]
        alike = sum(all(abs(a - b) <= 3 for a, b in zip(pixel, colour)) for pixel in pixels)
        return 100 * alike // max(len(pixels), 1)


def paeth(left, above, corner):
    """The PNG standard's predictor."""
    guess = left + above - corner
    distances = abs(guess - left), abs(guess - above), abs(guess - corner)
    return (left, above, corner)[distances.index(min(distances))]
