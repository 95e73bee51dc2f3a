# make torpor && docker build -t torpor:latest .
FROM scratch
COPY .cache/bin/torpor /torpor
USER 65532:65532
ENTRYPOINT ["/torpor"]
