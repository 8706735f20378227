// Writes, finds, changes and reads files; a change that somebody else was faster with is a conflict.
import { connect, RexdError, stdio } from 'x0x/client'
import { anyRexd } from './local-rexd.ts'

const { command, remove } = await anyRexd()
const client = await connect({ transport: stdio({ command }) })
try {
  const { files } = await client.open({ clientName: 'edit-files' })

  const { mtime } = await files.write('notes/todo.txt', 'water the plants\nfeed the cat\n', { mkdirParents: true })
  await files.edit('notes/todo.txt', { oldString: 'the cat', newString: 'both cats', expectedMtime: mtime })
  console.log(await files.readText('notes/todo.txt'))

  await files.edit('notes/todo.txt', { oldString: 'plants', newString: 'garden', expectedMtime: mtime }).catch((error: unknown) => {
    if (!(error instanceof RexdError)) throw error
    console.log(`${error.name}: ${String(error.data['reason'])}`)
  })

  const { matches } = await files.glob('**/*.txt')
  console.log(`${matches.length} file found`)
  await files.patch(['*** Begin Patch', '*** Delete File: notes/todo.txt', '*** End Patch', ''].join('\n'))
  console.log(`still there: ${(await files.stat('notes/todo.txt')).exists}`)
} finally {
  await client.close()
  await remove()
}
