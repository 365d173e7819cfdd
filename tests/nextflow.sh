#!/bin/sh
# Nextflow from the one file beside it: what its own launcher does, but for the downloads. It stops at the first tier of compilation, as jobs are short.
opens=
for package in java.lang java.io java.nio java.net java.util java.util.concurrent.locks java.util.concurrent.atomic sun.nio.ch sun.nio.fs; do
    opens="$opens --add-opens=java.base/$package=ALL-UNNAMED"
done
exec java -XX:+TieredCompilation -XX:TieredStopAtLevel=1 $opens -jar "$(dirname "$(readlink -f "$0")")"/nextflow-25.04.4-one.jar "$@"
