/** The factor by which tests may wait longer than usual. `npm test` measures it for this machine. It is 1 for a single file. */
const FACTOR = Math.max(1, Number(process.env['TEST_PATIENCE'] ?? 1) || 1)

/** An upper limit on waiting, in milliseconds, adjusted to this machine. Never use it for a minimum time. */
export const patient = (usualMs: number): number => usualMs * FACTOR
