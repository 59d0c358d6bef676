"""Perfetto's own trace processor: loads a trace and answers questions in SQL.

It is what ui.perfetto.dev runs in the browser: the same WebAssembly, here under node; see
trace_processor.cjs. Its remote procedure calls are TraceProcessorRpcStream, in
protos/perfetto/trace_processor/trace_processor.proto.
"""

import subprocess
from pathlib import Path

from perfetto.common.query_result_iterator import QueryResultIterator
from perfetto.trace_processor.platform import PlatformDelegate
from perfetto.trace_processor.protos import ProtoFactory

# Of a piece of a trace in one call.
PIECE = 16 << 20


class TraceProcessor:
    """One process for many traces, one after the other. A context manager: it ends the process."""

    def __init__(self, folder):
        self.folder = folder

    def __enter__(self):
        program = Path(__file__).with_suffix(".cjs")
        self.process = subprocess.Popen(
            ["node", program, self.folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.protos = ProtoFactory(PlatformDelegate())
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()

    def load(self, trace):
        """Forgets the last trace and takes this one."""
        rpc = self.protos.TraceProcessorRpc
        self._call(rpc.TPM_RESET_TRACE_PROCESSOR, lambda call: None)
        for at in range(0, len(trace), PIECE):
            piece = trace[at : at + PIECE]
            answer = self._call(
                rpc.TPM_APPEND_TRACE_DATA,
                lambda call, piece=piece: setattr(call, "append_trace_data", piece),
            )
            if answer.append_result.error:
                raise ValueError(answer.append_result.error)
        answer = self._call(rpc.TPM_FINALIZE_TRACE_DATA, lambda call: None)
        if answer.finalize_data_result.error:
            raise ValueError(answer.finalize_data_result.error)

    def ask(self, sql):
        """The rows that a query gives, as tuples."""

        def fill(call):
            call.query_args.sql_query = sql

        result = self._call(self.protos.TraceProcessorRpc.TPM_QUERY_STREAMING, fill).query_result
        if result.error:
            raise ValueError(f"{sql}: {result.error}")
        names = list(result.column_names)
        rows = QueryResultIterator(names, list(result.batch))
        return [tuple(getattr(row, name) for name in names) for row in rows]

    def _call(self, method, fill):
        """A call and its answer, whose parts, if it has several, are put together."""
        stream = self.protos.TraceProcessorRpcStream()
        call = stream.msg.add()
        call.request = method
        fill(call)
        self.process.stdin.write(stream.SerializeToString())
        self.process.stdin.flush()
        answer = self.protos.TraceProcessorRpc()
        while True:
            answer.MergeFromString(self._message())
            if answer.fatal_error or answer.HasField("invalid_request"):
                raise RuntimeError(answer.fatal_error or "it does not know this call")
            batches = answer.query_result.batch
            if not answer.HasField("query_result") or (batches and batches[-1].is_last_batch):
                return answer

    def _message(self):
        """The next message of the stream, whose field 1 they are."""
        if self._read(1) != b"\x0a":
            raise RuntimeError("this is no answer of a trace processor")
        length, shift = 0, 0
        while True:
            (byte,) = self._read(1)
            length |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return self._read(length)

    def _read(self, size):
        data = self.process.stdout.read(size)
        if len(data) < size:
            raise RuntimeError("the trace processor has ended")
        return data
