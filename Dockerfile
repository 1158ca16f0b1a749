# An image in which `make test` runs; see docs/platforms.md.
#
#     docker build --tag shoal .
#     docker run --rm shoal                                                         # make test
#     docker run --rm --volume "$PWD/runs:/shoal/runs" shoal make STEPS=1e6         # train; the runs stay on the host

FROM python:3.11-slim

# git: commits of runs. chromium: tests of the report. All packages of the tests have wheels for x86-64.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends chromium git make \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /shoal
COPY . .
RUN git config --system --add safe.directory /shoal && make .venv/.test

CMD ["make", "test"]
