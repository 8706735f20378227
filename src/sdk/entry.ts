export type { ReconnectOptions } from './backoff.ts'
export { streams } from './byte-transport.ts'
export { connect, type ConnectOptions, type OpenOptions, type RexdClient, type SessionLimits } from './client.ts'
export {
  OutputCut,
  type Command,
  type ExecOptions,
  type PlaceOptions,
  type RunResult,
  type StartWaiting,
  type TerminalOptions,
} from './commands.ts'
export type { ConnectionState } from './connection.ts'
export type { Data, DataSource } from './data.ts'
export { RexdDisconnected, RexdError, RexdGap, RexdProtocolError, type RexdErrorName } from './errors.ts'
export type { CamelCase } from './fields.ts'
export type { ReadOptions } from './remote-files.ts'
export type { OutputChunk, RemoteOutput } from './output.ts'
export type {
  ClampedPreference,
  /** @deprecated The former name of `ClampedPreference`. */
  ClampedPreference as CutWish,
  ProcessExit,
  RanOn,
  RunPlacement,
  /** @deprecated The former name of `RunPlacement`. */
  RunPlacement as Place,
} from './process-record.ts'
export type { CallOptions } from './promises.ts'
export {
  PROTOCOL,
  type FsEntry,
  type ProcessStatus,
  type ProcessSummary,
  type Result,
  type RexdEvent,
  type SessionInfo,
} from '../protocol/rexd/results.ts'
export type { OutputName } from '../protocol/reasons.ts'
export type { Encoding } from '../protocol/json-table.ts'
export type { Method, Params } from '../protocol/rexd/methods.ts'
export type { CapabilityName, LimitName } from '../protocol/rexd/fields.ts'
export type {
  EditOptions,
  FileContent,
  FileEdited,
  FileListing,
  FileMatches,
  FilesPatched,
  FileStatus,
  FileWritten,
  ReadAllOptions,
  RemoteFiles,
  WriteMode,
  WriteOptions,
} from './remote-files.ts'
export type { RemoteProcess, RemoteProgram, RemoteTerminal, WaitOptions } from './remote-process.ts'
export type { RexdSession, RunOptions, SessionState } from './session.ts'
export type { SessionEvent, SessionEvents } from './session-events.ts'
export { stdio, type StdioOptions } from './byte-transport.ts'
export {
  TargetRouter,
  UnknownTarget,
  type ResolvedTarget,
  type ResolveOptions,
  type Target,
  type TargetReason,
  type TargetRouterInit,
} from './target-router.ts'
export type { Transport, TransportEvents, TransportFactory } from './transport.ts'
export { webSocket, type WebSocketOptions } from './web-socket.ts'
