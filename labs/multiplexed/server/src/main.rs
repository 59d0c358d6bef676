//! A gRPC server (tonic) whose calls sleep, `/lab/quick` for 10 ms and `/lab/slow` for 300 ms. With
//! `--blocking` the slow ones sleep in the runtime's thread.

use std::convert::Infallible;
use std::future::{Future, ready};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};
use bytes::{Buf, BufMut, Bytes};
use http::{Request, Response};
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::time::sleep;
use tonic::Status;
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tower_service::Service;

const WORKERS: usize = 2;
const QUICK: Duration = Duration::from_millis(10);
const SLOW: Duration = Duration::from_millis(300);

type Later<T> = Pin<Box<dyn Future<Output = T> + Send>>;

fn main() -> Result<()> {
    let blocking = match std::env::args().nth(1).as_deref() {
        None => false,
        Some("--blocking") => true,
        Some(other) => bail!("unknown option {other}"),
    };
    let mut builder = Builder::new_multi_thread();
    let runtime = builder.worker_threads(WORKERS).enable_all().build()?;
    runtime.block_on(serve(blocking))
}

async fn serve(blocking: bool) -> Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    lab_kit::announce(&listener.local_addr()?.to_string())?;
    let server = Server::builder().add_service(Lab { blocking });
    // As by itself where it opens the port: else what ends an answer waits for an acknowledgement.
    let connections = TcpIncoming::from(listener).with_nodelay(Some(true));
    server.serve_with_incoming(connections).await?;
    Ok(())
}

#[derive(Clone)]
struct Lab {
    blocking: bool,
}

impl NamedService for Lab {
    const NAME: &'static str = "lab";
}

impl Service<Request<Body>> for Lab {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Later<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let call = match request.uri().path() {
            "/lab/quick" => Call::Sleeps(QUICK),
            "/lab/slow" if self.blocking => Call::Blocks(SLOW),
            "/lab/slow" => Call::Sleeps(SLOW),
            _ => return Box::pin(ready(Ok(Status::unimplemented("no such call").into_http()))),
        };
        Box::pin(async move { Ok(Grpc::new(Plain).unary(call, request).await) })
    }
}

enum Call {
    Sleeps(Duration),
    Blocks(Duration),
}

impl UnaryService<Bytes> for Call {
    type Response = Bytes;
    type Future = Later<Result<tonic::Response<Bytes>, Status>>;

    fn call(&mut self, _: tonic::Request<Bytes>) -> Self::Future {
        let answer = || Ok(tonic::Response::new(Bytes::from_static(b"answer")));
        match *self {
            Self::Sleeps(takes) => Box::pin(async move {
                sleep(takes).await;
                answer()
            }),
            Self::Blocks(takes) => Box::pin(async move {
                write_report(takes);
                answer()
            }),
        }
    }
}

/// What no task should do.
#[inline(never)]
fn write_report(takes: Duration) {
    thread::sleep(takes);
}

/// Messages as they are.
#[derive(Default)]
struct Plain;

impl Codec for Plain {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Plain {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(message);
        Ok(())
    }
}

impl Decoder for Plain {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}
