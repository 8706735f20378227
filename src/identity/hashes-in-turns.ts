import { STDIN_PIECE_BYTES } from '../protocol/limits.ts'
import { PieceHashes } from './piece-hashes.ts'

/** The hashes of stdin that is there all at once, a piece in each turn of the event loop: 64 of them at once would hold up everybody. */
export const pieceHashesInTurns = async (bytes: Uint8Array): Promise<Uint8Array[]> => {
  const hashes = new PieceHashes()
  for (let at = 0; at < bytes.length; at += STDIN_PIECE_BYTES) {
    if (at > 0) await new Promise((next) => setImmediate(next))
    hashes.update(bytes.subarray(at, at + STDIN_PIECE_BYTES))
  }
  return hashes.digest()
}
