import type { TranscriptEntry } from '../../protocol/console/transcript.ts'
import { type Page, linesAround, linesText } from './transcript-text.ts'
import { RunView } from './screen/run-view.ts'

/** Bytes that a view accepts at once. */
const BLOCK_BYTES = 4_096

/** Renders a command with raw output as the console shows it. A separate terminal reduces the output to its text and colours. */
export async function* renderEntry(entry: TranscriptEntry, page: Page): AsyncGenerator<string> {
  const { before, after } = linesAround(entry, page.look)
  yield linesText(before, page)
  const view = await RunView.open(entry, page.look, false)
  try {
    const bytes = Buffer.from(entry.output)
    for (let at = 0; at < bytes.length; at += BLOCK_BYTES) yield linesText(await view.push(bytes.subarray(at, at + BLOCK_BYTES)), page)
    yield linesText(await view.end(), page)
  } finally {
    view.dispose()
  }
  yield linesText(after, page)
}
