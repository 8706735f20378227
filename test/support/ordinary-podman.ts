/** Runs a sandbox of a new podman image as the current user. Prints the output of the run, or why it failed. */
import { ImageStore } from '../../src/process/sandbox/images.ts'
import { podmanMissing, podmanPlace } from './podman-image.ts'
import { household, runSandboxed } from './sandboxed.ts'

const ends: (() => unknown)[] = []
const t = { after: (end: () => unknown) => void ends.push(end) } as Parameters<typeof household>[0] & Parameters<typeof podmanPlace>[0]
try {
  if (podmanMissing !== null) {
    process.stdout.write(JSON.stringify({ none: podmanMissing }))
    process.exit()
  }
  const podman = await podmanPlace(t)
  await podman.import(async () => undefined)
  const image = await new ImageStore().image(podman.settings, podman.directory, true)
  const words = ['sh', '-c', 'cat /etc/of-image; echo "$FROM_IMAGE"; echo made > file; cat file; echo x > /etc/x; ls -A /etc']
  const { stdout, stderr } = await runSandboxed(t, await household(t), words, { image, settings: podman.settings })
  process.stdout.write(JSON.stringify({ uid: process.getuid?.(), stdout, stderr }))
} finally {
  for (const end of ends.reverse()) await end()
}
