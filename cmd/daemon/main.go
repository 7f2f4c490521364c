// Command daemon runs on every node. Through the node's container runtime interface it pulls images, stops
// containers that must be restarted, carries out probes, and reports what the runtime knows about containers
// (ND-001).
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/node/imagepull"
	"github.com/afloat-project/afloat/internal/node/metadata"
	"github.com/afloat-project/afloat/internal/node/probe"
	"github.com/afloat-project/afloat/internal/node/restart"
	"github.com/afloat-project/afloat/internal/node/runtime"
	"github.com/afloat-project/afloat/internal/node/stop"
	"github.com/afloat-project/afloat/internal/platform/features"
	"github.com/afloat-project/afloat/internal/platform/slim"
	"github.com/afloat-project/afloat/internal/platform/version"
)

// userAgent is the user agent of all API requests.
const userAgent = "kruise-daemon"

func main() {
	ctx := ctrl.SetupSignalHandler()
	if err := run(ctx, os.Args[1:]); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return
		}
		klog.FromContext(ctx).Error(err, "The daemon ends")
		klog.Flush()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	o, err := parseOptions(args)
	if err != nil {
		return err
	}
	if o.version {
		fmt.Println(version.Get())
		return nil
	}
	if err := logsapi.ValidateAndApply(o.logging, nil); err != nil {
		return fmt.Errorf("logging: %w", err)
	}
	return o.run(ctx)
}

// run runs the daemon until the context is canceled.
func (o *options) run(ctx context.Context) error {
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
	cfg, err := restConfig(o)
	if err != nil {
		return err
	}

	runtimeMeters, stops := runtime.NewMeters(), stop.NewStops()
	for _, collector := range append([]prometheus.Collector{
		gates.Metric(), build.Metric(), stops, collectors.NewBuildInfoCollector(),
	}, runtimeMeters.Collectors()...) {
		if err := metrics.Registry.Register(collector); err != nil {
			return fmt.Errorf("registering metrics: %w", err)
		}
	}

	runtimes := runtime.NewSet(runtime.Options{
		Root:       o.socketRoot,
		SocketFile: o.socketFile,
		Meters:     runtimeMeters,
	})
	mgr, err := newManager(cfg, o)
	if err != nil {
		return err
	}

	events, endEvents, err := recorders(cfg, o.node)
	if err != nil {
		return err
	}
	defer endEvents()

	if err := addControllers(ctx, mgr, o, gates, runtimes, stops, events); err != nil {
		return err
	}

	checks := &health{
		informers: informers(mgr, gates),
		started:   time.Now(),
		now:       time.Now,
		runtime:   check{"containerRuntime", func(context.Context) error { return runtimes.Ready() }},
	}

	// Health checks and runtimes are not runnables of the manager, because runnables wait for the API server.
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return serve(ctx, o.addr, checks.handler()) })
	group.Go(func() error { return runtimes.Run(ctx) })
	group.Go(func() error {
		if err := mgr.Start(ctx); err != nil {
			return fmt.Errorf("running: %w", err)
		}
		return nil
	})

	return group.Wait()
}

func restConfig(o *options) (*rest.Config, error) {
	cfg, err := rest.InClusterConfig()
	if o.kubeconfig != "" {
		cfg, err = clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	}
	if err != nil {
		return nil, fmt.Errorf("finding the cluster: %w", err)
	}
	cfg.QPS, cfg.Burst = o.qps, o.burst
	cfg.UserAgent = userAgent
	return cfg, nil
}

// cacheOptions limits every watch to the objects of the node.
func cacheOptions(node string) cache.Options {
	return cache.Options{
		DefaultTransform: slim.Metadata,
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}: {
				Field:     fields.OneTermEqualSelector("spec.nodeName", node),
				Transform: slim.NodePod,
			},
			&appsv1beta1.NodeImage{}:     {Field: fields.OneTermEqualSelector("metadata.name", node)},
			&appsv1alpha1.NodePodProbe{}: {Field: fields.OneTermEqualSelector("metadata.name", node)},
			&appsv1beta1.ContainerRecreateRequest{}: {
				Label: labels.SelectorFromSet(labels.Set{
					pub.RecreateNodeName: node,
					pub.RecreateActive:   "true",
				}),
				Transform: slim.NodeRequest,
			},
		},
	}
}

// mapper returns a RESTMapper for the kinds that the daemon uses. Discovery would require the API server
// before anything else could start.
func mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper([]schema.GroupVersion{
		corev1.SchemeGroupVersion, appsv1beta1.GroupVersion, appsv1alpha1.GroupVersion,
	})
	for _, kind := range []string{"Pod", "Secret"} {
		m.Add(corev1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	m.Add(appsv1beta1.GroupVersion.WithKind("ContainerRecreateRequest"), meta.RESTScopeNamespace)
	m.Add(appsv1beta1.GroupVersion.WithKind("NodeImage"), meta.RESTScopeRoot)
	m.Add(appsv1alpha1.GroupVersion.WithKind("NodePodProbe"), meta.RESTScopeRoot)
	return m
}

func newManager(cfg *rest.Config, o *options) (ctrl.Manager, error) {
	scheme := k8sruntime.NewScheme()
	for _, add := range []func(*k8sruntime.Scheme) error{
		clientgoscheme.AddToScheme, appsv1beta1.AddToScheme, appsv1alpha1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("building the scheme: %w", err)
		}
	}

	pprofAddr := "0"
	if o.pprof {
		pprofAddr = o.pprofAddr
	}
	grace := 5 * time.Second // the termination grace period of the pod is 10 s
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme,
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
			return mapper(), nil
		},
		Cache:                   cacheOptions(o.node),
		Metrics:                 metricsserver.Options{BindAddress: "0"}, // served with the health checks
		HealthProbeBindAddress:  "0",
		PprofBindAddress:        pprofAddr,
		GracefulShutdownTimeout: &grace,
		// The daemon does not exit if the API server does not respond at the start, however long that takes.
		Controller: config.Controller{CacheSyncTimeout: 365 * 24 * time.Hour},
	})
	if err != nil {
		return nil, fmt.Errorf("building the manager: %w", err)
	}

	return mgr, nil
}

// recorders returns a function that makes event recorders by component, all with the node as host.
func recorders(
	cfg *rest.Config, node string,
) (of func(component string) record.EventRecorder, end func(), err error) {
	kube, err := typedcorev1.NewForConfig(cfg)
	if err != nil {
		return nil, nil, fmt.Errorf("building the client of events: %w", err)
	}
	broadcaster := record.NewBroadcaster()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: kube.Events("")})
	return func(component string) record.EventRecorder {
		return broadcaster.NewRecorder(clientgoscheme.Scheme,
			corev1.EventSource{Component: component, Host: node})
	}, broadcaster.Shutdown, nil
}

func addControllers(
	ctx context.Context, mgr ctrl.Manager, o *options, gates *features.Gates, runtimes *runtime.Set,
	stops *prometheus.CounterVec, events func(string) record.EventRecorder,
) error {
	if !gates.Enabled(features.KruiseDaemon) {
		klog.FromContext(ctx).Info(
			"The feature gate KruiseDaemon is off: this daemon has nothing to do and need not be deployed")
		return nil
	}

	watchesPods, places := gates.Enabled(features.DaemonWatchingPod), stop.NewPlaces()
	if err := restart.Setup(mgr, restart.Options{
		Runtimes:    runtimes,
		Events:      events("kruise-daemon-crr"),
		Stops:       stops,
		Places:      places,
		WatchesPods: watchesPods,
	}); err != nil {
		return err
	}

	pulls := imagepull.Options{
		Node:     o.node,
		Runtimes: runtimes,
		Events:   events("kruise-daemon-imagepuller"),
		Workers:  o.pullWorkers,
	}
	switch plugins, err := imagepull.LoadPlugins(o.pluginConfig, o.pluginDir, clock.RealClock{}); {
	case err != nil:
		klog.FromContext(ctx).Error(err, "Images are pulled without credential providers")
	case plugins != nil:
		pulls.Provider = plugins
	}

	if err := imagepull.Setup(mgr, pulls); err != nil {
		return err
	}

	if gates.Enabled(features.PodProbeMarkerGate) {
		if err := probe.Setup(mgr, probe.Options{
			Node:        o.node,
			Runtimes:    runtimes,
			Events:      events("kruise-daemon-podprobe"),
			WatchesPods: watchesPods,
		}); err != nil {
			return err
		}
	}
	if !watchesPods {
		return nil
	}

	return metadata.Setup(mgr, reporting(gates, metadata.Options{
		Runtimes: runtimes,
		Events:   events("kruise-daemon-containermeta"),
		Stops:    stops,
		Places:   places,
	}))
}

// reporting sets the options that depend on gates about reports on pods.
func reporting(gates *features.Gates, options metadata.Options) metadata.Options {
	options.EnvFromMetadata = gates.Enabled(features.InPlaceUpdateEnvFromMetadata)
	return options
}

// informers returns the checks of the caches. They have the names of the reference.
func informers(mgr ctrl.Manager, gates *features.Gates) []check {
	if !gates.Enabled(features.KruiseDaemon) {
		return nil
	}

	synced := func(object client.Object) func(context.Context) error {
		return func(ctx context.Context) error {
			informer, err := mgr.GetCache().GetInformer(ctx, object, cache.BlockUntilSynced(false))
			if err != nil {
				return fmt.Errorf("not synced: %w", err)
			}
			if !informer.HasSynced() {
				return errors.New("not synced")
			}
			return nil
		}
	}
	checks := []check{
		{"nodeImageInformerSynced", synced(&appsv1beta1.NodeImage{})},
		{"crrInformerSynced", synced(&appsv1beta1.ContainerRecreateRequest{})},
	}
	if gates.Enabled(features.PodProbeMarkerGate) {
		checks = append(checks, check{"nodePodProbeInformerSynced", synced(&appsv1alpha1.NodePodProbe{})})
	}
	if gates.Enabled(features.DaemonWatchingPod) {
		checks = append(checks, check{"podInformerSynced", synced(&corev1.Pod{})})
	}

	return checks
}
