package main

import (
	"cmp"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/registry"
)

// options holds the flags and the environment of the manager (docs/spec/operations.md).
type options struct {
	version bool // print the version and exit, whatever else is set

	metricsAddr, probeAddr, pprofAddr string
	metricsSecure                     bool
	pprof                             bool

	leaderElection                           bool
	leaderElectionNamespace                  string
	leaderElectionID                         string
	leaderElectionResourceLock               string
	leaseDuration, renewDeadline, retryEvery time.Duration

	namespace             string
	syncPeriod            string
	cacheSyncTimeout      time.Duration
	webhookInitTimeout    time.Duration
	webhookClientCAFile   string
	webhookClientNames    []string
	protectionLog         string
	tracingEndpoint       string
	tracingRate           int
	shutdownDelay         time.Duration
	qps                   float32
	burst                 int
	kubeconfig            string
	featureGates          string
	baseDelay, maxDelay   time.Duration
	queueQPS, queueBucket int
	workers               map[string]*int
	kinds                 framework.Flags
	logging               *logsapi.LoggingConfiguration

	installNamespace string
	daemonNamespace  string
	webhookPort      int
	certDir          string
	secretName       string
	serviceName      string
	webhookHost      string
	certWriter       string
	renewBefore      string
}

func parseOptions(args []string) (*options, error) {
	o := &options{logging: logsapi.NewLoggingConfiguration()}
	fs := pflag.NewFlagSet("manager", pflag.ContinueOnError)

	fs.BoolVar(&o.version, "version", false, "print what this program was built from, and end")
	fs.StringVar(&o.metricsAddr, "metrics-addr", ":8080", "address of /metrics")
	fs.BoolVar(&o.metricsSecure, "metrics-secure", false,
		"serve /metrics by HTTPS, and only to callers whose token or client certificate gives them the right to get it")
	fs.StringVar(&o.probeAddr, "health-probe-addr", ":8000", "address of /healthz and /readyz")
	fs.BoolVar(&o.pprof, "enable-pprof", false, "serve Go profiles")
	fs.StringVar(&o.pprofAddr, "pprof-addr", "localhost:8090", "address of the Go profiles")
	fs.BoolVar(&o.leaderElection, "enable-leader-election", true, "run controllers on one replica only")
	fs.StringVar(&o.leaderElectionNamespace, "leader-election-namespace", "kruise-system",
		"namespace of the lock; empty is the manager's own")
	fs.StringVar(&o.leaderElectionID, "leader-election-id", "kruise-manager", "name of the lock")
	fs.StringVar(&o.leaderElectionResourceLock, "leader-election-resource-lock", "leases",
		"kind of the lock; only leases")
	fs.DurationVar(&o.leaseDuration, "leader-election-lease-duration", 15*time.Second,
		"how long a lock holds without renewal")
	fs.DurationVar(&o.renewDeadline, "leader-election-renew-deadline", 10*time.Second,
		"how long the leader tries to renew before it gives up")
	fs.DurationVar(&o.retryEvery, "leader-election-retry-period", 2*time.Second,
		"time between tries to take or renew the lock")
	fs.StringVar(&o.namespace, "namespace", "", "restrict caches to one namespace")
	fs.StringVar(&o.syncPeriod, "sync-period", "", "informer resync; empty or 0 is none")
	fs.DurationVar(&o.cacheSyncTimeout, "controller-cache-sync-timeout", 2*time.Minute,
		"how long controllers wait for their caches")
	fs.DurationVar(&o.webhookInitTimeout, "webhook-initialize-timeout", time.Minute,
		"how long the first pass over certificates and webhooks may take")
	fs.StringVar(&o.webhookClientCAFile, "webhook-client-ca-file", "",
		"certificates in PEM: callers of admission webhooks must show one that they have signed; followed when it changes; empty lets anybody call")
	fs.StringSliceVar(&o.webhookClientNames, "webhook-client-names", nil,
		"common names that certificates of callers of admission webhooks may have; empty allows any")
	fs.StringVar(&o.protectionLog, "protection-log-path", "/log",
		"folder of the log of refused deletions; if it cannot be written to, it is stderr")
	fs.DurationVar(&o.shutdownDelay, "shutdown-delay-duration", 10*time.Second,
		"for how long the manager goes on, and is not ready, after it is asked to end: callers of its webhooks learn of it later")
	fs.StringVar(&o.tracingEndpoint, "tracing-endpoint", "",
		"URL of a collector that spans of passes and their requests are sent to, by OTLP over gRPC; empty sends none")
	fs.IntVar(&o.tracingRate, "tracing-sampling-rate-per-million", 10_000,
		"of a million passes, how many are traced")
	fs.Float32Var(&o.qps, "rest-config-qps", -1,
		"API requests per second; negative leaves the limit to the server")
	fs.IntVar(&o.burst, "rest-config-burst", 50, "API requests at once, with a limit")
	fs.StringVar(&o.kubeconfig, "kubeconfig", os.Getenv("KUBECONFIG"),
		"path of a kubeconfig; empty is the in-cluster configuration")
	fs.StringVar(&o.featureGates, "feature-gates", "", "comma list of Name=bool")
	fs.DurationVar(&o.baseDelay, "rate-limiter-base-delay", 5*time.Millisecond,
		"first back-off of a failing object")
	fs.DurationVar(&o.maxDelay, "rate-limiter-max-delay", 1000*time.Second,
		"longest back-off of a failing object")
	fs.IntVar(&o.queueQPS, "rate-limiter-qps", 10, "retries per second of a controller")
	fs.IntVar(&o.queueBucket, "rate-limiter-bucket-size", 100, "retries at once of a controller")

	o.workers = o.kinds.AddTo(fs, registry.Kinds)
	o.workers["launchpriority"] = fs.Int("launchpriority-workers", 4,
		"pods with container launch priority worked on at the same time")

	// Flags of the reference for features that do not exist here are accepted, so that existing chart values
	// and arguments work.
	fs.Duration("expectation-timeout", 5*time.Minute, "accepted; doubtful writes are settled within seconds")
	fs.Bool("disable-no-deepcopy", false, "accepted; does nothing")

	logsapi.AddFlags(o.logging, fs)
	legacy := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(legacy)
	legacy.VisitAll(func(f *flag.Flag) {
		if fs.Lookup(f.Name) == nil {
			fs.AddGoFlag(f)
		}
	})

	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if o.version {
		return o, nil
	}
	if o.leaderElectionResourceLock != "leases" {
		return nil, fmt.Errorf("--leader-election-resource-lock: %q is not supported, only leases",
			o.leaderElectionResourceLock)
	}
	if o.shutdownDelay < 0 || o.shutdownDelay > 10*time.Minute {
		return nil, fmt.Errorf("--shutdown-delay-duration: %s is not between 0 and 10 minutes",
			o.shutdownDelay)
	}
	if err := errors.Join(o.callers(), o.tracing(), o.pacing(), o.kinds.Check()); err != nil {
		return nil, err
	}

	return o, o.environment()
}

// callers rejects names that would let nobody, or everybody, call the webhooks.
func (o *options) callers() error {
	switch names := o.webhookClientNames; {
	case slices.Contains(names, ""):
		return errors.New("--webhook-client-names: a name is empty")
	case len(names) > 0 && o.webhookClientCAFile == "":
		return errors.New("--webhook-client-names means nothing without --webhook-client-ca-file")
	}
	return nil
}

// tracing rejects an endpoint to which no spans could be sent.
func (o *options) tracing() error {
	if o.tracingRate < 0 || o.tracingRate > 1_000_000 {
		return fmt.Errorf("--tracing-sampling-rate-per-million: %d is not between 0 and 1000000",
			o.tracingRate)
	}
	if o.tracingEndpoint == "" {
		return nil
	}
	if at, err := url.Parse(o.tracingEndpoint); err != nil || at.Host == "" ||
		at.Scheme != "http" && at.Scheme != "https" {
		return fmt.Errorf("--tracing-endpoint: %q is no URL such as https://collector.example.com:4317",
			o.tracingEndpoint)
	}

	return nil
}

// pacing rejects values that would make controllers never retry, or retry without a delay.
func (o *options) pacing() error {
	for flag, value := range map[string]int{
		"rate-limiter-qps":         o.queueQPS,
		"rate-limiter-bucket-size": o.queueBucket,
	} {
		if value < 1 {
			return fmt.Errorf("--%s: %d is less than 1: what failed would never be tried again", flag, value)
		}
	}

	for flag, value := range map[string]time.Duration{
		"rate-limiter-base-delay": o.baseDelay,
		"rate-limiter-max-delay":  o.maxDelay,
	} {
		if value <= 0 {
			return fmt.Errorf("--%s: %s is not more than 0: what failed would be tried again without a pause",
				flag, value)
		}
	}

	for flag, value := range map[string]time.Duration{
		"controller-cache-sync-timeout": o.cacheSyncTimeout,
		"webhook-initialize-timeout":    o.webhookInitTimeout,
	} {
		if value < 0 {
			return fmt.Errorf("--%s: %s is negative", flag, value)
		}
	}

	return nil
}

func (o *options) environment() error {
	o.daemonNamespace = env("KRUISE_DAEMON_CONFIG_NS", pub.DaemonConfigNamespace)
	o.installNamespace = env("POD_NAMESPACE", "kruise-system")
	o.certDir = env("WEBHOOK_CERT_DIR", "/tmp/kruise-webhook-certs")
	o.secretName = env("SECRET_NAME", "kruise-webhook-certs")
	o.serviceName = env("SERVICE_NAME", "kruise-webhook-service")
	o.webhookHost = env("WEBHOOK_HOST", "")
	o.certWriter = env("WEBHOOK_CERT_WRITER", "")
	o.renewBefore = env("CERTS_RENEW_BEFORE", "")
	if o.certWriter != "" && o.certWriter != "secret" && o.certWriter != "fs" {
		return fmt.Errorf("WEBHOOK_CERT_WRITER %q is neither secret nor fs", o.certWriter)
	}

	if kinds := env("CUSTOM_RESOURCE_ENABLE", ""); kinds != "" && !strings.Contains(kinds, "SidecarSet") {
		// This is only a default, because later entries take precedence.
		o.featureGates = strings.Trim("PodWebhook=false,"+o.featureGates, ",")
	}
	if _, err := o.resync(); err != nil {
		return err
	}

	port, err := strconv.Atoi(env("WEBHOOK_PORT", "9876"))
	if err != nil || port < 1 || port > 65535 {
		return fmt.Errorf("WEBHOOK_PORT %q is not a port", os.Getenv("WEBHOOK_PORT"))
	}

	o.webhookPort = port
	return nil
}

// filesOnly reports whether certificates are kept only in the directory.
func (o *options) filesOnly() bool {
	return o.certWriter == "fs" || o.certWriter == "" && o.webhookHost != ""
}

// resync returns the resync period, or nil if there is none.
func (o *options) resync() (*time.Duration, error) {
	if o.syncPeriod == "" || o.syncPeriod == "0" {
		return nil, nil
	}
	period, err := time.ParseDuration(o.syncPeriod)
	if err != nil {
		return nil, fmt.Errorf("--sync-period: %w", err)
	}
	if period < 0 {
		return nil, fmt.Errorf("--sync-period: %s is negative", period)
	}
	return &period, nil
}

func env(name, fallback string) string { return cmp.Or(os.Getenv(name), fallback) }

// The API server decides who may read the metrics. The role is bound only if --metrics-secure is set.
//
// +kubebuilder:rbac:groups=authentication.k8s.io,roleName=kruise-metrics-role,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,roleName=kruise-metrics-role,resources=subjectaccessreviews,verbs=create

// metrics returns how the metrics are served. Secure serving uses the certificate of the webhooks. The
// certificate is read for each connection, because it is created after the start and renewed.
func (o *options) metrics() metricsserver.Options {
	served := metricsserver.Options{BindAddress: o.metricsAddr}
	if !o.metricsSecure {
		return served
	}

	served.SecureServing = true
	served.FilterProvider = filters.WithAuthenticationAndAuthorization
	served.TLSOpts = []func(*tls.Config){func(config *tls.Config) {
		config.MinVersion = tls.VersionTLS12
		config.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(filepath.Join(o.certDir, "tls.crt"),
				filepath.Join(o.certDir, "tls.key"))
			if err != nil {
				return nil, fmt.Errorf("reading the certificate for metrics: %w", err)
			}
			return &pair, nil
		}
	}}

	return served
}
