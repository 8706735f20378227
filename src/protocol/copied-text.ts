/**
 * Characters that mail and chat programs put into a line that they wrap or quote: white space, `>`, soft hyphens, blanks without width, and
 * the `=` that quoted-printable has before each line feed of its own.
 */
const ADDED = /[\s>=\u00ad\u200b-\u200d\u2060]/g

/** A link or a line of x0x as it was before it was copied: none of these characters is ever in one. */
export const asCopied = (text: string): string => text.replaceAll(ADDED, '')
