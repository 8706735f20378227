// Holds a conversation with a program that wants a terminal.
import { connect, stdio } from 'x0x/client'

import { anyRexd } from './local-rexd.ts'

const { command, remove } = await anyRexd()
const client = await connect({ transport: stdio({ command }) })
try {
  const session = await client.open({ clientName: 'open-terminal' })
  const terminal = await session.openTerminal({ shell: 'stty -echo size; read answer; stty size; echo "$answer"' }, { cols: 80, rows: 24 })

  let shown = ''
  for await (const data of terminal) {
    // One part of the output may have several lines, or half of one.
    const first = shown === ''
    shown += Buffer.from(data).toString()
    if (!first) continue
    await terminal.resize({ cols: 132, rows: 43 })
    await terminal.write('yes\r')
  }
  console.log(
    shown
      .trim()
      .split(/\s*\r\n/)
      .join(', '),
  )
  console.log(`ended with ${(await terminal.exited).exitCode}`)
} finally {
  await client.close()
  await remove()
}
