//! The gRPC contracts, read from their descriptors.

use prost::Message as _;
use prost::encoding::{WireType, encode_key, encode_varint};
use prost_types::field_descriptor_proto::Type;
use prost_types::{DescriptorProto, FileDescriptorSet, MethodDescriptorProto};
use std::collections::BTreeMap;

/// Deepest message inside of another one in a sample.
const DEPTH_MAX: usize = 4;

fn files() -> FileDescriptorSet {
    FileDescriptorSet::decode(waymaker_proto::FILE_DESCRIPTOR_SET).expect("a set of files")
}

/// Returns path and descriptor of all methods, in the order of the contracts.
fn methods() -> Vec<(String, MethodDescriptorProto)> {
    let mut methods = Vec::new();
    for file in files().file {
        for service in &file.service {
            for method in &service.method {
                let path = format!("/{}.{}/{}", file.package(), service.name(), method.name());
                methods.push((path, method.clone()));
            }
        }
    }
    methods
}

/// Returns the paths of all methods, in the order of the contracts.
pub fn paths() -> Vec<String> {
    methods().into_iter().map(|(path, _)| path).collect()
}

/// Returns a request for each method, in the same order, with a value in every field.
pub fn samples() -> Vec<Vec<u8>> {
    let mut messages = BTreeMap::new();
    for file in files().file {
        for message in file.message_type {
            add(&mut messages, &format!(".{}", file.package.as_deref().unwrap_or_default()), message);
        }
    }
    methods().iter().map(|(_, method)| sample(&messages, method.input_type(), 0)).collect()
}

fn add(messages: &mut BTreeMap<String, DescriptorProto>, scope: &str, message: DescriptorProto) {
    let name = format!("{scope}.{}", message.name());
    message.nested_type.iter().for_each(|nested| add(messages, &name, nested.clone()));
    messages.insert(name, message);
}

fn sample(messages: &BTreeMap<String, DescriptorProto>, name: &str, depth: usize) -> Vec<u8> {
    let mut out = Vec::new();
    // Messages of other projects, such as Duration, have two numbers.
    let Some(message) = messages.get(name) else { return vec![0x08, 1, 0x10, 1] };
    for field in &message.field {
        let number = field.number() as u32;
        let mut bytes = |value: &[u8]| {
            encode_key(number, WireType::LengthDelimited, &mut out);
            encode_varint(value.len() as u64, &mut out);
            out.extend_from_slice(value);
        };
        match field.r#type() {
            Type::String | Type::Bytes => bytes(b"key"),
            Type::Message if depth < DEPTH_MAX => bytes(&sample(messages, field.type_name(), depth + 1)),
            Type::Message | Type::Group => {}
            Type::Double | Type::Fixed64 | Type::Sfixed64 => {
                encode_key(number, WireType::SixtyFourBit, &mut out);
                out.extend_from_slice(&1.0_f64.to_le_bytes());
            }
            Type::Float | Type::Fixed32 | Type::Sfixed32 => {
                encode_key(number, WireType::ThirtyTwoBit, &mut out);
                out.extend_from_slice(&1.0_f32.to_le_bytes());
            }
            _ => {
                encode_key(number, WireType::Varint, &mut out);
                encode_varint(1, &mut out);
            }
        }
    }
    out
}
