// Command manager runs the webhooks on every replica and the controllers on the leader.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/component-base/featuregate"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	policyv1alpha1 "github.com/afloat-project/afloat/api/policy/v1alpha1"
	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/admission"
	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/platform/apiserver"
	"github.com/afloat-project/afloat/internal/platform/features"
	"github.com/afloat-project/afloat/internal/platform/leadermetrics"
	"github.com/afloat-project/afloat/internal/platform/observe"
	"github.com/afloat-project/afloat/internal/platform/podindex"
	"github.com/afloat-project/afloat/internal/platform/slim"
	"github.com/afloat-project/afloat/internal/platform/uninstall"
	"github.com/afloat-project/afloat/internal/platform/version"
	"github.com/afloat-project/afloat/internal/platform/watches"
	launchprioritycontroller "github.com/afloat-project/afloat/internal/podfeatures/launchpriority/controller"
	readinessgatecontroller "github.com/afloat-project/afloat/internal/podfeatures/readinessgate/controller"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/reconcile/podapply"
	"github.com/afloat-project/afloat/internal/registry"
)

// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=kruise-system,roleName=kruise-leader-election-role,resources=leases,verbs=create
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=kruise-system,roleName=kruise-leader-election-role,resources=leases,resourceNames=kruise-manager,verbs=get;update;patch
// +kubebuilder:rbac:groups="",namespace=kruise-system,roleName=kruise-leader-election-role,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=events.k8s.io,namespace=kruise-system,roleName=kruise-leader-election-role,resources=events,verbs=create;patch

// userAgent is the user agent of the manager's requests. Requests of a controller also have the controller's
// name.
const userAgent = "kruise-manager"

func main() {
	ctx := ctrl.SetupSignalHandler()
	if err := run(ctx, os.Args[1:]); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return
		}
		if errors.Is(err, uninstall.ErrInUse) { // the objects in use have been reported
			os.Exit(1)
		}
		klog.FromContext(ctx).Error(err, "The manager ends")
		klog.Flush()
		os.Exit(1)
	}
}

func run(signal context.Context, args []string) error {
	if len(args) > 0 && args[0] == uninstallGuard {
		return runUninstallGuard(signal, args[1:], os.Stdout)
	}

	o, err := parseOptions(args)
	if err != nil {
		return err
	}
	if o.version {
		fmt.Println(version.Get())
		return nil
	}

	ending := &shutdown{signal: signal, delay: o.shutdownDelay}
	ctx, cancel := ending.context()
	defer cancel()

	if err := logsapi.ValidateAndApply(o.logging, nil); err != nil {
		return fmt.Errorf("logging: %w", err)
	}

	logger := klog.FromContext(ctx)
	ctrl.SetLogger(logger)
	build := version.Get()
	logger.Info("Starts", "version", build.Version, "commit", build.Commit, "go", build.Go)

	gates, err := features.Parse(o.featureGates)
	if err != nil {
		return err
	}

	for _, warning := range gates.Warnings {
		logger.Info("Feature gates", "warning", warning)
	}

	logger.Info("Feature gates", "enabled", gates.String())
	if o.tracingEndpoint != "" {
		stop, err := observe.StartTracing(ctx, userAgent, o.tracingEndpoint, o.tracingRate)
		if err != nil {
			return err
		}
		defer sendLast(stop)
	}

	pods, creations := &podindex.Index{}, &creations{}
	mgr, watched, err := newManager(o, pods, creations)
	if err != nil {
		return err
	}

	webhooks, err := webhookOptions(o, gates, signal.Done())
	if err != nil {
		return err
	}

	kinds, err := newEnvironment(ctx, mgr, o, gates, pods, watched)
	if err != nil {
		return err
	}

	creations.release(kinds)

	// The webhooks run on every replica, whether it is the leader or not.
	webhooks.Environment = kinds
	if err := admission.Setup(ctx, webhooks); err != nil {
		return err
	}
	if err := mgr.AddReadyzCheck("shutdown", ending.ready); err != nil {
		return fmt.Errorf("adding the readiness check: %w", err)
	}
	if err := addControllers(ctx, o, kinds); err != nil {
		return err
	}
	if err := addHealth(mgr, watched, kinds.Pulse, o.installNamespace); err != nil {
		return err
	}
	if err := showMetrics(mgr, gates.Metric(), build.Metric(), watched, kinds.Pulse); err != nil {
		return err
	}
	read, err := readPods(ctx, mgr)
	if err != nil {
		return err
	}

	ending.all = noneStays(mgr.GetAPIReader(), o.installNamespace)
	ending.serving.Store(true)
	if err := start(ctx, mgr, read); err != nil {
		return fmt.Errorf("running: %w", err)
	}

	return nil
}

// sendLast exports the last spans when the process exits, and waits a few seconds for that.
func sendLast(stop func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if err := stop(ctx); err != nil {
		klog.FromContext(ctx).V(1).Info("The last spans were not sent", "err", err)
	}
}

// readPods lets each replica read all pods before it is ready, so that one that stands by can go on at once when it
// leads. Reading them takes seconds in a large cluster. The channel is closed when they and all else that is read at the
// start have been read.
func readPods(ctx context.Context, mgr ctrl.Manager) (<-chan struct{}, error) {
	if _, err := mgr.GetCache().GetInformer(ctx, &corev1.Pod{}); err != nil {
		return nil, fmt.Errorf("reading pods: %w", err)
	}
	read := make(chan struct{})
	return read, mgr.Add(freeAfterStart{read})
}

// freeAfterStart is started when the caches have been read. It returns the memory of the first list of all pods to the
// operating system. Most of it is garbage, since pods are received in full and stored slim, and the process would keep it
// otherwise.
type freeAfterStart struct{ read chan<- struct{} }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (freeAfterStart) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (f freeAfterStart) Start(ctx context.Context) error {
	close(f.read)
	debug.FreeOSMemory()
	select {
	case <-time.After(30 * time.Second): // the controllers have handled their first events by then
		debug.FreeOSMemory()
	case <-ctx.Done():
	}
	return nil
}

// addHealth adds the checks of the caches and the controllers of this replica, and the runnable that reports
// problems.
func addHealth(mgr ctrl.Manager, watched *watches.Watches, pulse *reconcile.Pulse, namespace string) error {
	h := newHealth(watched, pulse, mgr.Elected(), namespace)
	h.events, h.log = reconcile.NewRecorder(mgr.GetEventRecorder("manager")),
		mgr.GetLogger().WithName("health")
	if err := errors.Join(mgr.AddReadyzCheck("caches-read", h.read),
		mgr.AddHealthzCheck("controllers", h.work), mgr.Add(h)); err != nil {
		return fmt.Errorf("adding the checks of controllers: %w", err)
	}
	return nil
}

// showMetrics registers the collectors, the gauge kruise_manager_is_leader, and the metrics of leader
// election.
func showMetrics(mgr ctrl.Manager, all ...prometheus.Collector) error {
	for _, collector := range append(all, leadership(mgr.Elected())) {
		if err := metrics.Registry.Register(collector); err != nil {
			return fmt.Errorf("registering metrics: %w", err)
		}
	}
	return leadermetrics.Register(metrics.Registry)
}

func leadership(elected <-chan struct{}) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kruise_manager_is_leader",
		Help: "1 on the replica that runs the controllers.",
	}, func() float64 {
		select {
		case <-elected:
			return 1
		default:
			return 0
		}
	})
}

func scheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, appsv1alpha1.AddToScheme, appsv1beta1.AddToScheme,
		policyv1alpha1.AddToScheme, policyv1beta1.AddToScheme,
	} {
		if err := add(s); err != nil {
			return nil, fmt.Errorf("building the scheme: %w", err)
		}
	}
	return s, nil
}

// newManager makes the manager, and the Watches that follow its informers.
func newManager(
	o *options, pods *podindex.Index, creations *creations,
) (ctrl.Manager, *watches.Watches, error) {
	s, err := scheme()
	if err != nil {
		return nil, nil, err
	}

	cfg, err := restConfig(o)
	if err != nil {
		return nil, nil, err
	}

	resync, err := o.resync()
	if err != nil {
		return nil, nil, err
	}

	watched := watches.New(s, clock.RealClock{})
	pprofAddr := ""
	if o.pprof {
		pprofAddr = o.pprofAddr
	}
	cacheOptions := cache.Options{
		SyncPeriod:       resync,
		DefaultTransform: slim.Any,
		NewInformer:      pods.NewInformer,
		ByObject: map[client.Object]cache.ByObject{
			&corev1.ConfigMap{}: {Label: labels.SelectorFromSet(labels.Set{pub.LaunchBarrier: "true"})},
		},
	}
	if o.namespace != "" {
		cacheOptions.DefaultNamespaces = map[string]cache.Config{o.namespace: {}}
		for i := range registry.Kinds {
			for _, object := range registry.Kinds[i].Beside {
				cacheOptions.ByObject[object] = cache.ByObject{Namespaces: map[string]cache.Config{
					o.namespace:        {},
					o.installNamespace: {},
				}}
			}
		}
	}

	options := ctrl.Options{
		Scheme:                  s,
		Cache:                   cacheOptions,
		NewCache:                watched.Cache,
		NewClient:               creations.newClient,
		Metrics:                 o.metrics(),
		HealthProbeBindAddress:  o.probeAddr,
		PprofBindAddress:        pprofAddr,
		LeaderElection:          o.leaderElection,
		LeaderElectionID:        o.leaderElectionID,
		LeaderElectionNamespace: cmp.Or(o.leaderElectionNamespace, o.installNamespace),
		LeaseDuration:           &o.leaseDuration,
		RenewDeadline:           &o.renewDeadline,
		RetryPeriod:             &o.retryEvery,
		// A controller whose caches cannot be synced waits instead of ending the manager. It is reported
		// after o.cacheSyncTimeout.
		Controller: config.Controller{CacheSyncTimeout: 365 * 24 * time.Hour},
	}
	endWithin(gracefulStop, &options)
	mgr, err := ctrl.NewManager(cfg, options)
	if err != nil {
		return nil, nil, fmt.Errorf("building the manager: %w", err)
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return nil, nil, fmt.Errorf("adding the health check: %w", err)
	}

	return mgr, watched, nil
}

func restConfig(o *options) (*rest.Config, error) {
	cfg, err := rest.InClusterConfig()
	if o.kubeconfig != "" {
		cfg, err = clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	}
	if err != nil {
		return nil, fmt.Errorf("finding the cluster: %w", err)
	}

	// Priority and fairness of the API server limits the requests. Another limit here would only add latency.
	cfg.QPS, cfg.Burst = o.qps, o.burst
	cfg.UserAgent = userAgent
	cfg.Wrap(observe.UserAgents(userAgent))
	if o.tracingEndpoint != "" {
		cfg.Wrap(observe.TraceRequests)
	}

	return cfg, nil
}

// newEnvironment makes the environment in which all kinds are set up.
func newEnvironment(
	ctx context.Context, mgr ctrl.Manager, o *options, gates *features.Gates,
	pods *podindex.Index, watched *watches.Watches,
) (*framework.Environment, error) {
	e := &framework.Environment{
		Gates:           gates,
		Flags:           o.kinds,
		Namespace:       o.installNamespace,
		DaemonNamespace: o.daemonNamespace,
		Manager:         mgr,
		Workers:         o.workers,
		Index:           pods,
		Watches:         watched,
		Pulse:           reconcile.NewPulse(clock.RealClock{}, o.cacheSyncTimeout),
		Flow:            reconcile.NewWriteLimiter(0),
		Resizes: func(gate featuregate.Feature) (bool, error) {
			return apiserver.Resizes(mgr.GetConfig(), gates, gate)
		},
	}
	e.Limiter = func() workqueue.TypedRateLimiter[ctrl.Request] {
		return workqueue.NewTypedMaxOfRateLimiter(
			workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](o.baseDelay, o.maxDelay),
			&workqueue.TypedBucketRateLimiter[ctrl.Request]{
				Limiter: rate.NewLimiter(rate.Limit(o.queueQPS), o.queueBucket),
			})
	}

	if o.leaderElection {
		e.Current = func(ctx context.Context) error {
			watched.Current(ctx, mgr.GetLogger(), o.cacheSyncTimeout)
			return ctx.Err()
		}
		// What is stored is read while caches are filled.
		if err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
			_ = e.Current(ctx) // it fails only if the manager ends
			return nil
		})); err != nil {
			return nil, fmt.Errorf("adding what waits for caches: %w", err)
		}
	}

	e.PullJobs = podapply.NewPullJobs(mgr.GetCache(), mgr.GetRESTMapper(), e.Current)

	for _, collector := range e.Flow.Collectors() {
		if err := metrics.Registry.Register(collector); err != nil {
			return nil, fmt.Errorf("registering metrics: %w", err)
		}
	}

	err := podapply.IndexRevisions(ctx, mgr.GetFieldIndexer())
	if err != nil {
		return nil, err
	}
	if e.InPlace, err = apiserver.InPlace(mgr.GetConfig(), gates); err != nil {
		return nil, err
	}
	if e.Minor, err = apiserver.Minor(ctx, mgr.GetConfig()); err != nil {
		return nil, err
	}
	for i := range registry.Kinds {
		if prepare := registry.Kinds[i].Prepare; prepare != nil {
			if err := prepare(ctx, e); err != nil {
				return nil, err
			}
		}
	}

	return e, nil
}

// addControllers adds the controllers of pods and of all kinds. Each controller starts as soon as its kind is
// served, because an older installation may lack CRDs.
func addControllers(ctx context.Context, o *options, e *framework.Environment) error {
	if err := readinessgatecontroller.Setup(e.Manager, e.Pulse); err != nil {
		return err
	}
	if err := launchprioritycontroller.Setup(e.Manager, reconcile.Options{
		Workers:     *o.workers["launchpriority"],
		RateLimiter: e.Limiter,
		Current:     e.Current,
		Pulse:       e.Pulse,
	}); err != nil {
		return err
	}
	if err := unholdOff(e); err != nil {
		return err
	}

	for i := range registry.Kinds {
		kind := &registry.Kinds[i]
		if kind.Setup == nil || kind.Gates.Off(e.Gates) != nil {
			continue
		}
		absent := func() {
			if kind.Absent != nil {
				kind.Absent(e)
			}
		}
		setup := func(ctx context.Context) error { return kind.Setup(ctx, e) }
		if err := whenServed(ctx, e.Manager, reconcile.ServedEvery, absent, setup,
			registry.Served(kind)...); err != nil {
			return err
		}
	}

	return nil
}
