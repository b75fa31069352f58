// Text to ids and back. Implementations: Hugging Face tokenizer.json, GGUF gpt2-style BPE, GGUF llama SentencePiece.

export interface EncodeOptions {
  /** Add what the tokenizer adds by itself (BOS, EOS). */
  readonly addSpecialTokens: boolean;
  /** true: spellings of control tokens in the text become those tokens. false: they stay ordinary text. User-defined added tokens parse either way. */
  readonly parseSpecial: boolean;
  /**
   * A character that is left out of the text; spellings of control tokens that have it inside stay text. It lets one text hold
   * both markers that become control tokens and spellings that do not.
   */
  readonly mark?: string | undefined;
}

export interface Tokenizer {
  /** gpt2 | llama | tokenizer.json | none: printed by `inspect`. */
  readonly kind: string;
  /** Ids the tokenizer knows; the model's vocabulary may be padded beyond it. */
  readonly vocabSize: number;
  readonly bosTokenId: number | null;
  readonly eosTokenId: number | null;
  /** Whether encode(addSpecialTokens) puts BOS in front. */
  readonly addsBos: boolean;
  encode(text: string, options: EncodeOptions): number[];
  /** Lossy only where bytes are not UTF-8 (U+FFFD). */
  decode(tokenIds: ArrayLike<number>, options: { skipSpecialTokens: boolean }): string;
  /** The bytes this token contributes to the text (control tokens: their spelling). */
  tokenBytes(tokenId: number): Uint8Array;
  /** vLLM's token string in logprobs: the decoded text of this token alone. */
  tokenText(tokenId: number): string;
  /** The vocabulary's own spelling (`Ġthe`, `<0x0A>`), for /tokenize return_token_strs. */
  tokenPiece(tokenId: number): string;
  /** Control tokens are left out of text when skip_special_tokens. */
  isControl(tokenId: number): boolean;
  /** Id of an exact piece, or null. */
  tokenId(piece: string): number | null;
}
