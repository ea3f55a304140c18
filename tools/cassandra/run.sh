#!/bin/sh
# One node of Cassandra 5 on the loopback, for tests and measurements.
#
#   run.sh install             fetches the jars with Maven, unless they are there
#   run.sh installed           fetches nothing: says whether Java and the jars are there
#   run.sh FOLDER PORT         does so, and becomes the server: its data in FOLDER, CQL on 127.0.0.1:PORT
#
# With FLOWKEEP_CASSANDRA_NODE=2 or =3 the node is on 127.0.0.2 or .3, and joins the one on 127.0.0.1 with the
# same port, which has to run.
#
# The jars are kept in ~/.cache/flowkeep (or $FLOWKEEP_CACHE). Exit code 77: the server cannot be had here;
# the last line on standard error says why. The heap has 512 MB; all in all a node takes 0.6 to 0.9 GB.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
version=$(sed -n 's/.*<version>\([0-9.]*\..*\)<.*/\1/p' "$here/pom.xml")
cache=${FLOWKEEP_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/flowkeep}
jars=$cache/cassandra-$version

cannot() {
    echo "$*; install with \`./x setup\`" >&2
    exit 77
}

install() {
    [ -e "$jars/complete" ] && return 0
    command -v mvn >/dev/null || cannot "Cassandra needs mvn (package maven)"
    mkdir -p "$cache"
    fresh=$(mktemp -d "$cache/new.XXXXXX")
    mvn -q -B -f "$here/pom.xml" -DoutputDirectory="$fresh" -DincludeScope=runtime \
        org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies >"$fresh/log" 2>&1 || {
        tail -n 3 "$fresh/log" >&2
        rm -rf "$fresh"
        cannot "Maven did not fetch Cassandra $version"
    }
    touch "$fresh/complete"
    # Another process may have fetched them meanwhile: its are as good.
    mv -T "$fresh" "$jars" 2>/dev/null || rm -rf "$fresh"
    [ -e "$jars/complete" ] || cannot "Cassandra's jars cannot be kept in $jars"
}

# Java 17 is the last that Cassandra 5 runs on. It need not be the machine's usual one.
java=
for one in "${JAVA_HOME:-/nowhere}/bin/java" java /usr/lib/jvm/java-17-openjdk-*/bin/java; do
    if "$one" -version 2>&1 | grep -q 'version "17\.'; then
        java=$one
        break
    fi
done
[ -n "$java" ] || cannot "Cassandra needs Java 17 (package openjdk-17-jre-headless)"
if [ "${1:-}" = installed ]; then
    [ -e "$jars/complete" ] || cannot "Cassandra's jars are not in $jars"
    exit 0
fi
install
[ "${1:-}" != install ] || exit 0

folder=$1
port=$2
number=${FLOWKEEP_CASSANDRA_NODE:-1}
address=127.0.0.$number
# Three nodes share the ring evenly.
token=$(((number - 1) * 3074457345618258602))
# The port between nodes: the same on each address, and it has to be free.
storage=$((port > 40000 ? port - 20000 : port + 20000))
mkdir -p "$folder"
cat >"$folder/cassandra.yaml" <<YAML
cluster_name: flowkeep
num_tokens: 1
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters:
      - seeds: "127.0.0.1:$storage"
listen_address: $address
rpc_address: $address
native_transport_port: $port
storage_port: $storage
ssl_storage_port: $storage
endpoint_snitch: SimpleSnitch
data_file_directories: ["$folder/data"]
commitlog_directory: $folder/commitlog
saved_caches_directory: $folder/caches
hints_directory: $folder/hints
cdc_raw_directory: $folder/cdc
commitlog_sync: periodic
commitlog_sync_period: 1s
commitlog_segment_size: 8MiB
memtable_heap_space: 64MiB
memtable_offheap_space: 64MiB
file_cache_size: 32MiB
key_cache_size: 8MiB
concurrent_reads: 8
concurrent_writes: 8
auto_snapshot: false
paxos_variant: v2
storage_compatibility_mode: NONE
YAML
[ -z "${FLOWKEEP_CASSANDRA_YAML:-}" ] || printf '%s\n' "$FLOWKEEP_CASSANDRA_YAML" >>"$folder/cassandra.yaml"
cat >"$folder/logback.xml" <<XML
<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%-5level %date %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="out" /></root>
</configuration>
XML

# What JDK 17 keeps to itself and Cassandra uses (its conf/jvm17-server.options).
opens=
for package in java.base/jdk.internal.misc java.base/jdk.internal.ref java.base/sun.nio.ch \
    java.management.rmi/com.sun.jmx.remote.internal.rmi java.rmi/sun.rmi.registry java.rmi/sun.rmi.server \
    java.rmi/sun.rmi.transport.tcp java.sql/java.sql java.base/java.lang.ref java.base/java.lang.reflect \
    jdk.unsupported/sun.misc jdk.compiler/com.sun.tools.javac.file jdk.compiler/com.sun.tools.javac.util; do
    opens="$opens --add-exports=$package=ALL-UNNAMED"
done
for package in java.base/java.lang.module java.base/jdk.internal.loader java.base/jdk.internal.ref \
    java.base/jdk.internal.reflect java.base/jdk.internal.math java.base/jdk.internal.module \
    java.base/jdk.internal.util.jar java.base/sun.nio.ch java.base/sun.nio java.base/java.io \
    java.base/java.nio java.base/java.lang java.base/java.lang.reflect java.base/java.util \
    java.base/java.util.concurrent java.base/java.util.concurrent.atomic java.base/java.net \
    java.rmi/sun.rmi.transport.tcp jdk.management/com.sun.management.internal \
    jdk.management.jfr/jdk.management.jfr; do
    opens="$opens --add-opens=$package=ALL-UNNAMED"
done
cd "$folder"
# shellcheck disable=SC2086
exec "$java" -Xms256m -Xmx512m -Xss512k -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData \
    -XX:MaxDirectMemorySize=256m $opens \
    -Djdk.attach.allowAttachSelf=true "-javaagent:$jars/jamm-0.4.0.jar" \
    "-Dcassandra.config=file://$folder/cassandra.yaml" "-Dlogback.configurationFile=$folder/logback.xml" \
    "-Dcassandra.storagedir=$folder" -Dcassandra-foreground=yes \
    -Dcassandra.skip_wait_for_gossip_to_settle=0 -Dcassandra.ring_delay_ms=100 \
    -Dcassandra.superuser_setup_delay_ms=0 "-Dcassandra.initial_token=$token" \
    -cp "$folder:$jars/*" org.apache.cassandra.service.CassandraDaemon
