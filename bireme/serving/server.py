"""The server: models, protocols, and their life from start to drain."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from bireme.core.errors import InvalidArgument
from bireme.serving.app import App, Handler
from bireme.serving.draining import deafen
from bireme.serving.language.model import LanguageModel, LanguageOptions, is_language
from bireme.serving.lifecycle import Lifecycle
from bireme.serving.metrics import Metrics
from bireme.serving.models import Arrays
from bireme.serving.openai import OpenAi
from bireme.serving.options import Options
from bireme.serving.page import page
from bireme.serving.repository import Repository
from bireme.serving.rest import Rest
from bireme.serving.settings import Settings

logger = logging.getLogger("bireme.serving")

_IDLE = 75  # seconds until a connection without requests is closed


class Server:
    """Serves models by name.

        with Server({"net": "folder/net"}) as server:
            print(server.url)

    A model is a path, a folder NAME/VERSION/, "ocr", "embedding:PATH", "module:Class", a Python
    class or object with `predict`, or a language model: a GGUF file, a folder of Hugging Face's, or
    "pypi:..." and "hf:..." as in `zoo.load`. `run` serves until a signal comes; `start` and `stop`,
    or `with`, serve from a thread.
    """

    def __init__(
        self,
        models: Mapping[str, Any] | Sequence[str] = (),
        settings: Settings | None = None,
        options: Options | None = None,
        language: LanguageOptions | None = None,
    ):
        self.settings = settings or Settings()
        self.models = Repository(self.settings.drain)
        self.lifecycle = Lifecycle()
        self.languages: dict[str, LanguageModel] = {}
        self.metrics = Metrics(self.models, self.languages)
        named = models if isinstance(models, Mapping) else {name_of(m): m for m in models}
        if len(named) != len(models):
            raise InvalidArgument(f"[serve] two models have one name: {', '.join(models)}")
        self._sources = {n: s for n, s in named.items() if is_language(s)}
        self._sources |= {n: s for n, s in named.items() if isinstance(s, LanguageModel)}
        self._language_options = language
        for name, source in named.items():
            if name not in self._sources:
                self.models.add(name, source, options)
        handlers: dict[str, Handler] = {
            "": page,
            "page.js": page,
            "page.css": page,
            "v1": OpenAi(self.languages, self.models),
            "v2": Rest(self.models, self.lifecycle, self.settings.model_control),
        }
        self.app = App(self.settings, self.lifecycle, self.metrics, handlers)
        self.port = self.settings.port
        self.grpc_port = self.settings.grpc_port
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._hurry: asyncio.Event | None = None
        self._failure: BaseException | None = None
        self._serving = threading.Event()

    @property
    def url(self) -> str:
        """Where HTTP is answered."""
        scheme = "https" if self.settings.certificate else "http"
        host = f"[{self.settings.host}]" if ":" in self.settings.host else self.settings.host
        return f"{scheme}://{host}:{self.port}"

    def load(self) -> None:
        """Load all models; raises what the first that fails raised."""
        for name in self.names():
            self.load_one(name)

    def names(self) -> list[str]:
        """The names of all models."""
        return [*self._sources, *self.models.names()]

    def load_one(self, name: str) -> None:
        """Load a model and compile what it will need."""
        source = self._sources.get(name)
        if source is None:
            self.models.load(name)
        elif isinstance(source, LanguageModel):
            self.languages[name] = source
        else:
            self.languages[name] = LanguageModel(name, source, self._language_options)

    def predict(self, name: str, **inputs: Any) -> Arrays:
        """Run a model through its queue, as a request would."""
        return self.models.call(name, **inputs)

    def run(self) -> None:
        """Serve until SIGTERM or Ctrl-C; every request that was accepted gets its answer."""
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(self._main(signals=True))

    def start(self) -> Server:
        """Load what is not loaded, and serve from a thread."""
        if not (self.models.all() or self.languages):
            self.load()

        def serve() -> None:
            try:
                with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                    runner.run(self._main(signals=False))
            except BaseException as e:
                self._failure = e
            finally:
                self._serving.set()

        self._thread = threading.Thread(target=serve, name="serve", daemon=True)
        self._thread.start()
        self._serving.wait()
        if self._failure is not None:
            raise self._failure
        return self

    def stop(self, hurry: bool = True) -> None:
        """Drain and end; in a hurry, without the lame-duck time."""
        loop, stop, hurrying = self._loop, self._stop, self._hurry
        if self._thread is None or loop is None or stop is None or hurrying is None:
            return
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(stop.set)
            if hurry:
                loop.call_soon_threadsafe(hurrying.set)
        self._thread.join()
        self._thread = None

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()

    # --- inside the event loop --------------------------------------------------------------

    async def _main(self, signals: bool) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop, self._hurry = asyncio.Event(), asyncio.Event()
        if signals:
            self._loop.add_signal_handler(signal.SIGTERM, self._on_signal, False)
            self._loop.add_signal_handler(signal.SIGINT, self._on_signal, True)
        listening = _listen(self.settings)
        self.port = listening.getsockname()[1]
        http = await self._start_http(listening)
        grpc = await self._start_grpc()
        ticking = asyncio.create_task(http.main_loop())
        self.lifecycle.started = True
        self._serving.set()
        await self._stop.wait()
        self.lifecycle.draining = True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._hurry.wait(), self.settings.lame_duck)
        deafen(listening)
        await asyncio.sleep(0.05)  # what has come is accepted and read
        http.should_exit = True
        await ticking
        ends = [http.shutdown(sockets=[listening])]
        if grpc is not None:
            ends.append(grpc.stop(self.settings.drain))
        await asyncio.gather(*ends)
        self.lifecycle.live = False
        await asyncio.to_thread(self.models.close)
        for model in self.languages.values():
            await asyncio.to_thread(model.engine.drain, self.settings.drain)

    def _on_signal(self, hurry: bool) -> None:
        if self._stop is None or self._hurry is None:
            return
        if hurry or self._stop.is_set():
            self._hurry.set()
        self._stop.set()

    async def _start_http(self, listening: socket.socket) -> Any:
        import uvicorn

        from bireme.serving.connections import limited

        config = uvicorn.Config(
            self.app,  # pyright: ignore[reportArgumentType]
            http=limited(self.settings),
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            timeout_keep_alive=_IDLE,
            timeout_graceful_shutdown=max(int(self.settings.drain), 1),
            ssl_certfile=self.settings.certificate,
            ssl_keyfile=self.settings.key,
        )
        config.load()
        server = uvicorn.Server(config)
        server.lifespan = config.lifespan_class(config)
        await server.startup(sockets=[listening])
        return server

    async def _start_grpc(self) -> Any:
        if self.settings.grpc_port is None:
            return None
        from bireme.serving.grpc_v2 import Grpc, make_server

        service = Grpc(self.models, self.lifecycle, self.metrics, self.settings)
        server, self.grpc_port = make_server(service, self.settings)
        await server.start()
        return server


def name_of(source: str) -> str:
    """The name of a model that was given as NAME=SOURCE, or by its source alone."""
    if source.startswith(("pypi:", "hf:", "lm:", "embedding:")):
        source = source.partition(":")[2].partition("==")[0].partition("@")[0]
    name = os.path.basename(os.path.normpath(source.partition(":")[0] or source))
    stem, ending = os.path.splitext(name)
    return stem if ending in (".onnx", ".json", ".pdmodel", ".gguf", ".py") else name


def _listen(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((settings.host, settings.port))
    except OSError as e:
        found.close()
        raise InvalidArgument(
            f"[serve] cannot listen on {settings.host}:{settings.port}: {e.strerror}"
        ) from None
    found.setblocking(False)
    return found


def _loop_factory() -> Any:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
