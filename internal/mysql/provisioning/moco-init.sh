#!/bin/sh
# Creates the data directory of a new instance, once. The script creates the directory under another name, and renames it when it is
# complete. If the script is interrupted, the next run starts from the beginning. The statements of the script are not written to the
# binary log, because each instance would then have transactions of its own and be errant.
# The arguments are passed to mysqld. The image needs only sh, mysqld, mv and rm. If MOCO_ZONEINFO is set, it is the folder of the time
# zone database, and mysql_tzinfo_to_sql loads this folder into the time zone tables. Without these tables, a server knows no time zone by
# its name.
set -eu
config=${MOCO_CONFIG:-/etc/mysql/my.cnf}
volume=${MOCO_VOLUME:-/var/lib/mysql}
users=${MOCO_USERS:-/moco-users/users.sql}

if [ -d "$volume/data" ]; then
  echo "moco-init: the data directory is there"
  exit 0
fi
rm -rf "$volume/data.new"
initialize() {
  ${MOCO_MYSQLD:-mysqld} --defaults-file="$config" --initialize-insecure --datadir="$volume/data.new" --init-file="$@" \
    --disable-log-bin --read-only=OFF --super-read-only=OFF --default-time-zone=+00:00
}
if [ -z "${MOCO_ZONEINFO:-}" ]; then
  initialize "$users" "$@"
else
  # If mysql_tzinfo_to_sql fails, the text of echo is not a valid statement, so mysqld fails and shows the text. The statements are
  # piped to mysqld, so no password is written to a file.
  {
    echo "USE mysql;"
    ${MOCO_TZINFO:-mysql_tzinfo_to_sql} "$MOCO_ZONEINFO" || echo "spec.initializeTimezoneData needs mysql_tzinfo_to_sql and $MOCO_ZONEINFO in the image;"
    while IFS= read -r statement; do printf '%s\n' "$statement"; done <"$users"
  } | initialize /dev/stdin "$@"
fi
# The file contains the UUID of the server. Without the file, the server generates a UUID at its first start.
rm -f "$volume/data.new/auto.cnf"
mv "$volume/data.new" "$volume/data"
echo "moco-init: the data directory is made"
