/** What a terminal or an editor could show as something else than it is: controls, line and bidi marks, invisible ones. */
const DECEPTIVE = /[\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]/gu

const escapeUnits = (text: string): string =>
  Array.from({ length: text.length }, (_unit, at) => `\\u${text.charCodeAt(at).toString(16).padStart(4, '0')}`).join('')

/** JSON in which nothing deceptive stands for itself; it reads back as the same value. */
export const safeJson = (value: unknown): string => JSON.stringify(value).replaceAll(DECEPTIVE, escapeUnits)
