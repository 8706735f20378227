/** The first descriptor that systemd hands over, sd_listen_fds(3). */
const LISTEN_FDS_START = 3

/** What our units call the socket to systemd that they have opened for us (OpenFile=). */
const NOTIFY_NAME = 'x0x-notify'

interface HandedDescriptor {
  readonly fd: number
  readonly name: string
}

/** What systemd handed to this very process, and not to one that started us. */
const handedDescriptors = (): HandedDescriptor[] => {
  if (process.env['LISTEN_PID'] !== String(process.pid)) return []
  const names = (process.env['LISTEN_FDNAMES'] ?? '').split(':')
  return Array.from({ length: Number(process.env['LISTEN_FDS']) || 0 }, (_, at) => ({ fd: LISTEN_FDS_START + at, name: names[at] ?? '' }))
}

/** The listening socket, where there is one and no other. */
export const activatedSocket = (): number | null => {
  const [socket, ...others] = handedDescriptors().filter(({ name }) => name !== NOTIFY_NAME)
  return socket === undefined || others.length > 0 ? null : socket.fd
}

/** The socket that leads to systemd itself. */
export const notifySocket = (): number | null => handedDescriptors().find(({ name }) => name === NOTIFY_NAME)?.fd ?? null
