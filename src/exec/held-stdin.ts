import type { StdinSource } from './run-spec.ts'

/** Stdin that is here whole, with the hashes of its pieces. */
export const heldStdin = (bytes: Uint8Array, pieces: readonly Uint8Array[]): StdinSource => ({
  len: bytes.length,
  pieces,
  chunks: (async function* () {
    yield bytes
  })(),
})
