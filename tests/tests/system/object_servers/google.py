"""Google's JSON calls: google.py URL put NAME FILE | get NAME | list"""

import json
import pathlib
import shutil
import sys
import urllib.parse
import urllib.request

url, action, *rest = sys.argv[1:]
if action == "put":
    name, file = rest
    query = urllib.parse.urlencode({"uploadType": "media", "name": name})
    body = pathlib.Path(file).read_bytes()
    request = urllib.request.Request(f"{url}/upload/storage/v1/b/bucket/o?{query}", body, method="POST")
    urllib.request.urlopen(request).read()
elif action == "get":
    name = urllib.parse.quote(rest[0], safe="")
    with urllib.request.urlopen(f"{url}/storage/v1/b/bucket/o/{name}?alt=media") as answer:
        shutil.copyfileobj(answer, sys.stdout.buffer)
else:
    with urllib.request.urlopen(f"{url}/storage/v1/b/bucket/o") as answer:
        print(*(item["name"] for item in json.load(answer).get("items", [])), sep="\n")
