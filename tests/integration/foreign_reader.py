# SPDX-License-Identifier: Apache-2.0
"""Prints what another project's client (`etcd3`) reads of the store, as JSON: ``foreign_reader.py HOST:PORT PREFIX``.

A process of its own: that client's generated code needs the pure Python implementation of protobuf. It shares no code
with this project and imports none of it.
"""

import json
import sys

import etcd3


def main() -> None:
    """One line for each key, in the order of their create revisions, with what its lease says of itself."""
    host, _, port = sys.argv[1].rpartition(":")
    client = etcd3.client(host=host, port=int(port), timeout=30)
    for value, about in client.get_prefix(sys.argv[2], sort_order="ascend", sort_target="create"):
        leased = []
        if about.lease_id:
            leased = [key.decode() for key in client.get_lease_info(about.lease_id).keys]
        line = {
            "key": about.key.decode(),
            "value": value.decode(),
            "create": about.create_revision,
            "lease": about.lease_id,
            "leased": leased,
        }
        print(json.dumps(line))


if __name__ == "__main__":
    main()
