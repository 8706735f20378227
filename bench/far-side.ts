import { connect, createServer, type AddressInfo, type Socket } from 'node:net'

/** Forwards bytes and the end from one socket to another. `both` also forwards the other way. */
export const splice = (from: Socket, to: Socket, ways: 'one' | 'both' = 'one'): void => {
  from.on('error', () => undefined)
  from.pipe(to)
  from.on('close', () => {
    if (!from.readableEnded) to.destroy()
  })
  if (ways === 'both') splice(to, from)
}

/** The program on the far side of a path. It forwards TCP connections to a unix socket, and prints its port. */
const main = (host: string, socketPath: string): void => {
  const server = createServer({ noDelay: true }, (near) => splice(near, connect(socketPath), 'both'))
  server.listen(0, host, () => process.stdout.write(`${(server.address() as AddressInfo).port}\n`))
}

if (import.meta.main) main(process.argv[2]!, process.argv[3]!)
