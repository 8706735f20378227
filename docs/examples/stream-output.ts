// Talks with a program while it runs, and ends one that takes too long.
import { connect, stdio } from 'x0x/client'
import { anyRexd } from './local-rexd.ts'

const { command, remove } = await anyRexd()
const client = await connect({ transport: stdio({ command }) })
try {
  const session = await client.open({ clientName: 'stream-output' })

  const sorting = await session.exec(['sort', '-n'], { stdinOpen: true })
  for (const line of ['10', '9', '100']) await sorting.write(`${line}\n`)
  await sorting.end()
  for await (const { stream, data } of sorting) console.log(`${stream}: ${Buffer.from(data).toString().trim().replaceAll('\n', ' ')}`)
  console.log(`sort ended with ${(await sorting.exited).exitCode}`)

  const impatient = new AbortController()
  const counting = await session.exec(['sleep', '60'], { signal: impatient.signal })
  impatient.abort(new Error('that takes too long'))
  await counting.exited.catch((error: unknown) => console.log(`given up: ${(error as Error).message}`))
} finally {
  await client.close()
  await remove()
}
