import type {
  FsEditParams,
  FsEditResult,
  FsGlobParams,
  FsGlobResult,
  FsListParams,
  FsListResult,
  FsPatchParams,
  FsPatchResult,
  FsReadParams,
  FsReadResult,
  FsStatResult,
  FsWriteParams,
  FsWriteResult,
  PathParams,
} from './protocol-files.ts'
import type {
  Done,
  ExecInputParams,
  ExecInputTaken,
  ExecKilled,
  ExecKillParams,
  ExecStarted,
  ExecStartParams,
  ExecWaitParams,
  ProcessStatus,
  PtyCloseParams,
  PtyInputParams,
  PtyOpened,
  PtyOpenParams,
  PtyResizeParams,
  SessionParams,
} from './protocol-processes.ts'
import type {
  SessionClosed,
  SessionEventsParams,
  SessionEventsResult,
  SessionInfo,
  SessionOpened,
  SessionOpenParams,
  SessionResumed,
  SessionResumeParams,
} from './protocol-sessions.ts'

/** REXD/1 as a client sees it. The files beside this one have the fields, under the names that they have in the messages. */
export const PROTOCOL = 'rexd/1'

/** Every method, with what it is asked and what it answers. */
export interface Methods {
  'session.open': { params: SessionOpenParams; result: SessionOpened }
  /** Comes back to a session by another connection. */
  'session.resume': { params: SessionResumeParams; result: SessionResumed }
  /** Events of a session that are kept, where none come by themselves. */
  'session.events': { params: SessionEventsParams; result: SessionEventsResult }
  /** Ends the session and every process of it. */
  'session.close': { params: SessionParams; result: SessionClosed }
  'session.info': { params: SessionParams; result: SessionInfo }
  /** Starts a program; what becomes of it is told by events. */
  'exec.start': { params: ExecStartParams; result: ExecStarted }
  'exec.wait': { params: ExecWaitParams; result: ProcessStatus }
  'exec.kill': { params: ExecKillParams; result: ExecKilled }
  'exec.input': { params: ExecInputParams; result: ExecInputTaken }
  /** Starts a program on a terminal; what it writes is told by events. */
  'pty.open': { params: PtyOpenParams; result: PtyOpened }
  'pty.input': { params: PtyInputParams; result: ExecInputTaken }
  'pty.resize': { params: PtyResizeParams; result: Done }
  'pty.close': { params: PtyCloseParams; result: Done }
  'fs.read': { params: FsReadParams; result: FsReadResult }
  'fs.write': { params: FsWriteParams; result: FsWriteResult }
  'fs.list': { params: FsListParams; result: FsListResult }
  'fs.glob': { params: FsGlobParams; result: FsGlobResult }
  'fs.stat': { params: PathParams; result: FsStatResult }
  'fs.edit': { params: FsEditParams; result: FsEditResult }
  'fs.patch': { params: FsPatchParams; result: FsPatchResult }
}
export type Method = keyof Methods
export type Params<M extends Method> = Methods[M]['params']
export type Result<M extends Method> = Methods[M]['result']
