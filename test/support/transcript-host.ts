// Started by tests of transcripts. Writes a transcript as a console does. Lines of input: `arrive`, `end PLACE TEXT`, `close`.
import { createInterface } from 'node:readline'

import { TranscriptWriter } from '../../src/transcripts/writer.ts'
import { systemClock } from '../../src/base/clock.ts'
import { endedCommand } from './transcripts.ts'

const say = (text: string): void => console.log(`say ${text}`)
const writer = await TranscriptWriter.start({ clock: systemClock }, { directory: process.argv[2]!, recordEnv: false, say })
console.log(`name ${writer.name}`)
for await (const line of createInterface({ input: process.stdin })) {
  const [what, place = '', text = ''] = line.split(' ')
  if (what === 'arrive') console.log(`place ${writer.arrive()}`)
  else if (what === 'end') void writer.end(Number(place), endedCommand(text)).then((durable) => console.log(`${text} ${durable}`))
  else await writer.close().then(() => console.log('closed'))
}
