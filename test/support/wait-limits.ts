/** Times as long as usual that tests may wait: what `npm test` measured of this machine; 1 where a file is run by itself. */
const FACTOR = Math.max(1, Number(process.env['TEST_PATIENCE'] ?? 1) || 1)

/** An upper bound on waiting, in milliseconds, for the machine that runs the test. Never use it for a time that must at least pass. */
export const patient = (usualMs: number): number => usualMs * FACTOR
