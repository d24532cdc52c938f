# SPDX-License-Identifier: MIT
"""Messages of pprof's profile.proto, which no package ships: built for the protobuf library from
the numbers and types of their fields.

Source: proto/profile.proto of github.com/google/pprof.
"""

from __future__ import annotations

from functools import cache
from typing import Any

__all__ = ["Message", "new_message"]

Message = Any
"""A message of the protobuf library, which is loaded where it is used."""
PACKAGE = "perftools.profiles"
MESSAGES = {
    "Profile": """sample_type=1*ValueType sample=2*Sample mapping=3*Mapping location=4*Location
        function=5*Function string_table=6*string comment=13*int64 default_sample_type=14:int64""",
    "ValueType": "type=1:int64 unit=2:int64",
    "Sample": "location_id=1*uint64 value=2*int64",
    "Mapping": """id=1:uint64 memory_start=2:uint64 memory_limit=3:uint64 filename=5:int64
        has_functions=7:bool has_filenames=8:bool has_line_numbers=9:bool""",
    "Location": "id=1:uint64 mapping_id=2:uint64 address=3:uint64 line=4*Line",
    "Line": "function_id=1:uint64 line=2:int64",
    "Function": """id=1:uint64 name=2:int64 system_name=3:int64 filename=4:int64
        start_line=5:int64""",
}
"""``field=number:type`` of each that we write, with ``*`` for ``:`` where it is repeated."""


def new_message(name: str) -> Message:
    """An empty one."""
    return _classes()[name]()


@cache
def _classes() -> dict[str, Any]:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message_factory import GetMessageClass

    file = FileDescriptorProto(name="profile.proto", package=PACKAGE, syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for text in fields.split():
            repeated = "*" in text
            field, _, rest = text.partition("=")
            number, _, type_ = rest.partition("*" if repeated else ":")
            added = message.field.add(name=field, number=int(number))
            added.label = Field.LABEL_REPEATED if repeated else Field.LABEL_OPTIONAL
            if type_ in MESSAGES:
                added.type, added.type_name = Field.TYPE_MESSAGE, f".{PACKAGE}.{type_}"
            else:
                added.type = Field.Type.Value(f"TYPE_{type_.upper()}")
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    find = pool.FindMessageTypeByName
    return {name: GetMessageClass(find(f"{PACKAGE}.{name}")) for name in MESSAGES}
