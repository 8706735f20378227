/** `DIRECTORY NAME…`: unpacks docker images and prints the results as JSON, with the output of a run in each. */
import { readdir } from 'node:fs/promises'

import { errorText } from '../../src/base/errors.ts'
import { DEFAULT_SANDBOX } from '../../src/policy/sandbox/sandbox-settings.ts'
import { ImageStore } from '../../src/process/sandbox/images.ts'
import { household, runSandboxed } from './sandboxed.ts'

const [, , directory = '', ...names] = process.argv
const ends: (() => unknown)[] = []
const t = { after: (end: () => unknown) => void ends.push(end) } as Parameters<typeof household>[0]
const store = new ImageStore()
const said: unknown[] = []
for (const name of names) {
  const settings = { ...DEFAULT_SANDBOX, engine: 'docker' as const, image: name }
  try {
    const image = await store.image(settings, directory, true)
    const { stdout } = await runSandboxed(t, await household(t), ['sh', '-c', 'cat /etc/of-image; echo $OF; ls /; ls /dev | wc -l'], {
      image,
      settings,
    })
    said.push({ id: image.id, env: image.env, stdout })
  } catch (error) {
    said.push(errorText(error))
  }
}
process.stdout.write(JSON.stringify({ said, left: await readdir(directory) }))
for (const end of ends.reverse()) await end()
