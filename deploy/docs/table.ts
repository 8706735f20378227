const cell = (text: string): string => text.replaceAll('|', String.raw`\|`).replaceAll('\n', ' ')

/** A Markdown table. */
export const table = (header: readonly string[], rows: readonly (readonly string[])[]): string =>
  [header, header.map(() => '---'), ...rows].map((cells) => `| ${cells.map(cell).join(' | ')} |`).join('\n')

export const code = (text: string): string => `\`${text}\``
