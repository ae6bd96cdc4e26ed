# outdraft's server on a CPU. Build and run: docs/server.md.
FROM python:3.11-slim AS build
WORKDIR /tree
COPY pyproject.toml setup.py MANIFEST.in README.md LICENSE ./
COPY dev/build_backend.py dev/compile_native.py dev/
COPY src src
# Without a C compiler in the image, the build fetches one for itself.
RUN pip wheel --no-deps --wheel-dir /wheels .

FROM python:3.11-slim
ENV OUTDRAFT_CACHE=/models HF_HOME=/models/hub PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
# The build for the CPU: PyPI's has gigabytes of CUDA in it.
RUN pip install torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels pip install "$(ls /wheels/*.whl)[server]"
RUN useradd --uid 1000 outdraft && mkdir /models && chown outdraft /models
USER outdraft
VOLUME /models
EXPOSE 8000
HEALTHCHECK --interval=10s --start-period=120s CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/health', timeout=5)"]
ENTRYPOINT ["outdraft"]
CMD ["serve", "--host", "0.0.0.0"]
