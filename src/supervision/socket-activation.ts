/** The first descriptor that systemd hands over, sd_listen_fds(3). */
const LISTEN_FDS_START = 3

/** The listening socket that systemd handed to this very process, or null. */
export const activatedSocket = (): number | null =>
  process.env['LISTEN_PID'] === String(process.pid) && Number(process.env['LISTEN_FDS']) === 1 ? LISTEN_FDS_START : null
