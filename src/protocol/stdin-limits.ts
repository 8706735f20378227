/** The limits of stdin that a Request signs, beside those in `limits.ts`. Sizes are bytes. */

/** A Request signs stdin in pieces of this size, and none is fed before its hash fits: what a run holds back is small, and most stdin is one piece. */
export const STDIN_PIECE_BYTES = 1024 * 1024
/** The hashes of so many pieces fit a Request beside its argv, 34 bytes each … */
export const MAX_STDIN_PIECES = 512
/** … so that no stdin of a run on the mesh is longer than this. */
export const MAX_STDIN_BYTES = MAX_STDIN_PIECES * STDIN_PIECE_BYTES
/** Such stdin sent ahead of the responder's acknowledgement: one piece is held back or fed while the next is on its way. */
export const MAX_PIECES_UNACKED = 2 * STDIN_PIECE_BYTES
/** … and what all runs together may be sent ahead: a Request beyond it is denied as one beyond the runs at once. */
export const MAX_STDIN_HELD = 128 * 1024 * 1024
