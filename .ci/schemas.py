"""Exports every schema and checks it against the JSON Schema metaschema with a second reader."""

import jsonschema

from assay.provenance.catalogue import json_schema
from assay.spec.documents import DOCUMENTS

for name in sorted(DOCUMENTS):
    jsonschema.Draft202012Validator.check_schema(json_schema(name))
    print(name)
