// Loaded before the network's half: makes its memory as large as X0X_BALLAST_MB says, half of it objects of the heap.
'use strict'
const bytes = Number(process.env.X0X_BALLAST_MB) * 1e6
globalThis.ballast = [Buffer.alloc(bytes / 2, 1), Array.from({ length: bytes / 2 / 64 }, (_, index) => ({ index, text: `${index}` }))]
