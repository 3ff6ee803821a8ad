#!/bin/sh
# Certificates for the server, and a key for every site. Adds what is missing.
#   ./keys.sh fl.example.org paris rome oslo
set -eu
host=$1
shift
exec focusfl deploy certificates keys --hosts "$host" localhost 127.0.0.1 --sites "$@"
