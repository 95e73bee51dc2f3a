// SPDX-License-Identifier: Apache-2.0

// Package conditional runs a controller only while the API it watches is served.
//
// A manager of controller-runtime dies two minutes after it starts when the CRD of one controller is missing, and
// a stopped controller cannot be started again. With this package the controller waits, starts within
// milliseconds after its CRD is installed, stops when the CRD is gone, and starts anew when it comes back, while
// the manager and everything else in it goes on. The change is one line:
//
//	func main() {
//		mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{Scheme: scheme})
//		…
//		// before: err = (&WidgetReconciler{}).SetupWithManager(mgr)
//		_, err = conditional.Setup(mgr, conditional.ServedObject(&examplev1.Widget{}),
//			func(mgr manager.Manager) error { return (&WidgetReconciler{Client: mgr.GetClient()}).SetupWithManager(mgr) })
//		…
//		err = mgr.Start(ctrl.SetupSignalHandler())
//	}
//
// A single controller can say so where it is built instead: see [NewControllerManagedBy].
//
// The setup function runs once per start. The manager it receives is a scope: it has its own cache, client,
// API reader, REST mapper and field indexes, all of which end with the stop; afterwards they answer
// [ErrScopeClosed]. So take the client from the manager that setup was given, never from outside.
//
// What happens in between is a [Group]: Dormant, Starting, Running, Draining, Stuck or Failed. An error of a
// runnable, or a panic in setup, makes the group Failed and is retried with a back-off; it never ends the
// manager. [Group.Status], [Group.Wait], [Group.Checker], metrics, [Events] and a page of the metrics server tell where
// it is. A condition that comes and goes is held back by [RestartLimit].
//
// The stop comes with the deletion of the CRD, not with its request: while a CRD is Terminating its objects still
// need their controller to take the finalizers off. When the API server cannot tell (outage, 5xx, no right to
// look), the condition is [Unknown] and whatever runs keeps running.
//
// A condition need not be an API: [Object], [Func] and [Signal] follow a flag, a function and a channel, [FirstServed]
// prefers one version to another, [On] looks at another cluster, and [All], [Any] and [Not] make one condition of
// others. What is [Unknown] in a part decides only when nothing else does.
//
// The scope's cache and client have controller-runtime's default options, unless the manager was made with
// [ManagerOptions]: then they have the manager's. Webhooks are set up outside, for every replica has to serve them.
package conditional
