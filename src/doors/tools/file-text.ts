import { isUtf8 } from 'node:buffer'
import { TerminalFilter } from '../../base/terminal-filter.ts'
import { shown } from '../../base/visible-text.ts'

/** Part of a file as text for a model. */
export interface FileText {
  readonly text: string
  /** U+FFFD stands in it for bytes that are no UTF-8. */
  readonly invalidUtf8: boolean
  /** What a terminal obeys was taken out, or stands there as an escape: the file has other characters. */
  readonly altered: boolean
}

const filtered = (text: string): string => {
  const filter = new TerminalFilter()
  return shown(filter.push(text) + filter.end())
}

/** As the output of programs is shown, but for CR LF, which stays: who edits a file names its text as it is. */
export const fileText = (bytes: Uint8Array): FileText => {
  const decoded = new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes)
  const text = decoded.split('\r\n').map(filtered).join('\r\n')
  return { text, invalidUtf8: !isUtf8(bytes), altered: text !== decoded }
}
