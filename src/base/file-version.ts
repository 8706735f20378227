/** Of a file that a later version has written: nothing of it may be guessed, or written over. `known`: null where ours states none. */
export const laterVersion = (found: number, known: number | null): string =>
  `version ${found} is of a later x0x, and this one reads ${known === null ? 'none that has a version' : `version ${known}`}: start that one again, or put back what stood here before the upgrade; nothing was changed`

/** What is wrong with the version that a file states, or null. Looked at before all else: another version may have other keys. */
export const versionProblem = (found: unknown, known: number): string | null => {
  if (found === known) return null
  return Number.isSafeInteger(found) && Number(found) > known ? laterVersion(Number(found), known) : `expected ${known}`
}
