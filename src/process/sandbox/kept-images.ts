import { readFile, readdir, rm, stat } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { IMAGE_KEPT_MS, IMAGE_LEFT_MS, IMAGE_SPARED_MS, MAX_IMAGES_KEPT } from '../../protocol/sandbox-limits.ts'
import { ask } from './image-engine.ts'

export const NEW = 'new-'
/** By its name, one that a crash has left is known and removed. */
export const containerOf = (fresh: string): string => `x0x-${basename(fresh)}`

/** Some directories of an image may be written by nobody, so that nothing could be removed from them. */
export const discard = async (path: string): Promise<void> =>
  rm(path, { recursive: true, force: true }).catch(async () => {
    await ask('chmod', ['-R', 'u+rwX', path])
    await rm(path, { recursive: true, force: true })
  })

/** Which of these names of images a process has mounted, whoever started it. */
const mountedOf = async (names: readonly string[]): Promise<ReadonlySet<string>> => {
  const mounted = new Set<string>()
  if (names.length === 0) return mounted
  const pids = (await readdir('/proc').catch(() => [])).filter((name) => /^\d+$/.test(name))
  // One after another: there may be many, and nobody waits for it but who unpacks an image.
  for (const pid of pids) {
    const mounts = await readFile(`/proc/${pid}/mountinfo`, 'latin1').catch(() => '')
    for (const name of names) if (mounts.includes(`/${name}`)) mounted.add(name)
  }
  return mounted
}

/**
 * Makes room for one more: what was unused for long, the least lately used of too many, and what a crash has left half unpacked.
 * What runs use stays, and what was asked for a moment ago, which may be about to be.
 */
export const dropUnused = async (engine: string, directory: string, now = Date.now()): Promise<void> => {
  const names = await readdir(directory)
  const found = await Promise.all(
    names.map(async (name) => ({ name, used: (await stat(join(directory, name)).catch(() => null))?.ctimeMs ?? 0 })),
  )
  const [left, images] = [found.filter(({ name }) => name.startsWith(NEW)), found.filter(({ name }) => !name.startsWith(NEW))]
  const recent = images.sort((one, other) => other.used - one.used).slice(0, MAX_IMAGES_KEPT - 1)
  const old = images.filter((one) => now - one.used > IMAGE_SPARED_MS && (!recent.includes(one) || now - one.used > IMAGE_KEPT_MS))
  const mounted = await mountedOf(old.map(({ name }) => name))
  for (const { name } of old.filter((one) => !mounted.has(one.name))) await discard(join(directory, name)).catch(() => undefined)
  for (const { name } of left.filter(({ used }) => now - used > IMAGE_LEFT_MS)) {
    await ask(engine, ['rm', containerOf(name)]).catch(() => undefined)
    await discard(join(directory, name)).catch(() => undefined)
  }
}
