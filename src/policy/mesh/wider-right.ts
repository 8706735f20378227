/** One right that is wider in an ACL than in another. Both texts describe the newer ACL. */
export interface WiderRight {
  /** Text if the newer ACL has the wider right. */
  readonly gained: string
  /** Text if the newer ACL has lost the wider right. */
  readonly lost: string
}

/** A difference with the same text in both directions. */
export const differs = (text: string): WiderRight => ({ gained: text, lost: text })

/** A value that allows more in one ACL than in the other. */
export const moreOf = (key: string, wide: number | string, narrow: number | string): WiderRight => ({
  gained: `${key} is ${wide}, and was ${narrow}`,
  lost: `${key} is ${narrow}, and was ${wide}`,
})

/** A key that allows more if it is true. */
export const allows = (key: string, value = 'true'): WiderRight => ({
  gained: `${key} is ${value}, and was not`,
  lost: `${key} is no longer ${value}`,
})

/** A key that allows less if it is true. */
export const restricts = (key: string, value?: string): WiderRight => {
  const { gained, lost } = allows(key, value)
  return { gained: lost, lost: gained }
}

/** A permission that the narrower ACL does not have: "no entry of" the old or the new file. */
export const lackedBy = (before: string, after = ''): WiderRight => ({
  gained: `${before} the old file${after}`,
  lost: `${before} the new file${after}`,
})
