// Goes on with its session when the connection is lost: what runs, runs on, and nothing of its output is missing.
import { connect, RexdDisconnected, webSocket } from 'x0x/client'

import { listeningRexd } from './local-rexd.ts'

const { url, token, stop } = await listeningRexd()
const client = await connect({ transport: webSocket({ url, token }) })
try {
  const session = await client.open({ clientName: 'over-web-socket', resumable: true })
  console.log(`a lost connection is waited for ${session.resumeWindowMs} ms`)

  const counting = await session.exec({ shell: 'for i in 1 2 3; do echo "$i"; done' })
  for await (const data of counting.stdout) process.stdout.write(data)

  // What only reads or waits is asked again by the client. Of anything else that was under way when the connection broke
  // nobody knows whether it was done, and only the caller can say what to do then.
  try {
    await session.files.write('notes.txt', 'water the plants\n')
  } catch (error) {
    if (!(error instanceof RexdDisconnected && error.sent)) throw error
    console.log(`written all the same: ${(await session.files.stat('notes.txt')).exists}`)
  }
  console.log(`notes: ${(await session.files.readText('notes.txt')).trim()}`)
} finally {
  await client.close()
  await stop()
}
