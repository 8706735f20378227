// One set of tools, several servers: what says where a command runs stays outside of what a model sees.
import { stdio, TargetRouter } from 'x0x/client'
import { localRexd } from './local-rexd.ts'

const [near, far] = [await localRexd(), await localRexd()]
const router = new TargetRouter({
  clientName: 'route-targets',
  // Here both are of this host; elsewhere: stdio({ command: ['ssh', '-T', 'server-a', 'rexd', '--stdio'] }).
  targets: { local: { transport: stdio(near) }, 'server-a': { transport: stdio(far) } },
  paths: { '/srv/app': 'server-a' },
  defaultTarget: 'local',
})

/** The tool that a model sees. */
const bash = async (command: string, path?: string): Promise<string> => {
  const { target, reason } = await router.resolve(path === undefined ? {} : { path })
  const session = await router.session(target)
  const { stdoutText } = await session.run({ shell: command })
  return `${target} (${reason}): ${stdoutText.trim()}`
}

try {
  console.log(await bash('echo hello'))
  console.log(await bash('echo hello', '/srv/app/package.json'))
  console.log(await bash('echo the same again'))
  // What `/target local` of a user would do.
  router.select('local')
  console.log(await bash('echo hello', '/srv/app/package.json'))
} finally {
  await router.close()
  await Promise.all([near.remove(), far.remove()])
}
