"""Makes the model files that the bench compares engines on: make-models.py SHIPPED.gguf OUT_FOLDER NAME...

NAME is smollm2-135m-{q4_0,q8_0,bf16} (the shipped file in another format, every matrix of the one type; what that does to quality
does not matter for speed) or {qwen2.5-0.5b,llama-3.2-1b}-{q4_1,q4_0,q8_0,bf16} (random weights with those dimensions and the
shipped tokenizer). A file that is there already is left alone.
"""
import os
import sys

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter, LlamaFileType, quants

# layers, width, feed-forward width, heads, key/value heads, head size, vocabulary, rope base, bias on q, k, v
DIMENSIONS = {
    "qwen2.5-0.5b": (24, 896, 4864, 14, 2, 64, 151936, 1e6, True),
    "llama-3.2-1b": (16, 2048, 8192, 32, 8, 64, 128256, 5e5, False),
}
ROWS_AT_ONCE = 8192


def type_named(name):
    return GGMLQuantizationType[name.upper()]


def quantize(matrix, target):
    """float32 [rows, columns] -> the bytes of each row; in slices, so that a large vocabulary needs little memory."""
    slices = [quants.quantize(matrix[i : i + ROWS_AT_ONCE], target) for i in range(0, len(matrix), ROWS_AT_ONCE)]
    return np.concatenate(slices)


def copy_tokenizer(reader, writer, vocabulary=None):
    """Every tokenizer field; token lists are filled up or cut to `vocabulary` entries."""
    for name, field in reader.fields.items():
        if not name.startswith("tokenizer."):
            continue
        value = field.contents()
        if vocabulary is not None and name.endswith(".tokens"):
            value = (value + [f"<unused{i}>" for i in range(len(value), vocabulary)])[:vocabulary]
        if vocabulary is not None and name.endswith(".token_type"):
            value = (value + [5] * max(0, vocabulary - len(value)))[:vocabulary]
        add(writer, name, value, field)


def add(writer, name, value, field):
    if field.types[0] == GGUFValueType.ARRAY:
        writer.add_key_value(name, value, GGUFValueType.ARRAY, field.types[-1])
    else:
        writer.add_key_value(name, value, field.types[0])


def add_file_type(writer, target):
    """OpenVINO loads no file without it."""
    writer.add_file_type(LlamaFileType[f"MOSTLY_{target.name}"])


def convert(reader, path, target):
    writer = GGUFWriter(path, "llama")
    add_file_type(writer, target)
    for name, field in reader.fields.items():
        if name.startswith("llama.") or name == "general.name":
            add(writer, name, field.contents(), field)
    copy_tokenizer(reader, writer)
    for tensor in reader.tensors:
        values = quants.dequantize(tensor.data, tensor.tensor_type)
        shape = [int(n) for n in tensor.shape][::-1]
        values = np.ascontiguousarray(values.reshape(shape), dtype=np.float32)
        if len(shape) == 1:
            writer.add_tensor(tensor.name, values)
        else:
            writer.add_tensor(tensor.name, quantize(values, target), raw_dtype=target)
    finish(writer)


def random_model(reader, path, base, target):
    layers, width, ff, heads, kv_heads, head, vocabulary, rope_base, has_bias = DIMENSIONS[base]
    arch = "qwen2" if has_bias else "llama"
    writer = GGUFWriter(path, arch)
    add_file_type(writer, target)
    writer.add_name(f"{base} dimensions, random weights")
    writer.add_block_count(layers)
    writer.add_context_length(8192)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(ff)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_rope_freq_base(rope_base)
    writer.add_rope_dimension_count(head)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(vocabulary)
    copy_tokenizer(reader, writer, vocabulary)
    rng = np.random.default_rng(20)

    def matrix(name, rows, columns):
        values = rng.standard_normal((rows, columns), dtype=np.float32) / np.float32(columns**0.5)
        writer.add_tensor(name, quantize(values, target), raw_dtype=target)

    def ones(name, size):
        writer.add_tensor(name, np.ones(size, dtype=np.float32))

    matrix("token_embd.weight", vocabulary, width)
    ones("output_norm.weight", width)
    for i in range(layers):
        at = f"blk.{i}."
        ones(at + "attn_norm.weight", width)
        ones(at + "ffn_norm.weight", width)
        matrix(at + "attn_q.weight", heads * head, width)
        matrix(at + "attn_k.weight", kv_heads * head, width)
        matrix(at + "attn_v.weight", kv_heads * head, width)
        matrix(at + "attn_output.weight", width, heads * head)
        matrix(at + "ffn_gate.weight", ff, width)
        matrix(at + "ffn_up.weight", ff, width)
        matrix(at + "ffn_down.weight", width, ff)
        if has_bias:
            for part, size in (("q", heads * head), ("k", kv_heads * head), ("v", kv_heads * head)):
                writer.add_tensor(f"{at}attn_{part}.bias", np.zeros(size, dtype=np.float32))
    finish(writer)


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    shipped, folder, *names = sys.argv[1:]
    os.makedirs(folder, exist_ok=True)
    reader = GGUFReader(shipped)
    for name in names:
        path = os.path.join(folder, name + ".gguf")
        if os.path.exists(path):
            continue
        base, target = name.rsplit("-", 1)
        if base == "smollm2-135m":
            convert(reader, path + ".part", type_named(target))
        else:
            random_model(reader, path + ".part", base, type_named(target))
        os.replace(path + ".part", path)
        print(path, flush=True)


main()
