package admission

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/admission/certificate"
	"github.com/afloat-project/afloat/internal/admission/configuration"
	"github.com/afloat-project/afloat/internal/admission/pod"
	"github.com/afloat-project/afloat/internal/admission/protection"
	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/platform/features"
	"github.com/afloat-project/afloat/internal/platform/matchconditions"
	"github.com/afloat-project/afloat/internal/platform/protectionlog"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// Names of the shipped objects.
const (
	mutatingConfiguration   = "kruise-mutating-webhook-configuration"
	validatingConfiguration = "kruise-validating-webhook-configuration"
)

// Options configure the webhook server.
type Options struct {
	// Environment is what the kinds were prepared in. Setup adds what their webhooks need.
	*framework.Environment
	// Kinds are the kinds of the registry.
	Kinds []framework.Kind
	// SecretName and ServiceName name objects in the install namespace.
	SecretName, ServiceName string
	// Host, if not empty, is called instead of the Service (WEBHOOK_HOST). FilesOnly keeps the certificates
	// only in CertDir (WEBHOOK_CERT_WRITER=fs).
	Host      string
	FilesOnly bool
	// External is the gate EnableExternalCerts: another program creates the Secret and publishes the CAs
	// (OPS-050).
	External bool
	Port     int
	CertDir  string
	// ClientCAFile holds, in PEM, the CAs that sign the certificates of callers of admission webhooks; if it
	// is empty, anyone may call. ClientNames are the allowed common names of these certificates; if it is
	// empty, any name is allowed (OPS-049).
	ClientCAFile string
	ClientNames  []string
	// Stopping is closed when the process is asked to stop, some time before the context of the manager ends.
	// Nil means never.
	Stopping <-chan struct{}
	// RenewBefore is how long before its expiry a certificate is replaced; zero means
	// certificate.DefaultRenewBefore.
	RenewBefore time.Duration
	// InitTimeout is how long the first pass may take; zero means 60 s (OPS-042).
	InitTimeout time.Duration
	// ForbidPrivileged rejects templates with privileged containers.
	ForbidPrivileged bool
	// Pods is the gate PodWebhook (ND-184), and GateAllPods the gate KruisePodReadinessGate, if Pods is set
	// (CRR-087).
	Pods, GateAllPods bool
	followed
	// guard decides on deletions of protected objects; Setup makes it.
	guard *protection.Guard
	// ProtectionLog is the directory of the log of rejected deletions (OPS-097).
	ProtectionLog string
}

// Secrets and configurations are only read and written by name (OPS-080, OPS-082). A create cannot be limited
// to a name.
//
// +kubebuilder:rbac:groups="",namespace=kruise-system,roleName=kruise-webhook-role,resources=secrets,verbs=create
// +kubebuilder:rbac:groups="",namespace=kruise-system,roleName=kruise-webhook-role,resources=secrets,resourceNames=kruise-webhook-certs,verbs=get;list;watch;update
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,roleName=kruise-certs-role,resources=mutatingwebhookconfigurations,resourceNames=kruise-mutating-webhook-configuration,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,roleName=kruise-certs-role,resources=validatingwebhookconfigurations,resourceNames=kruise-validating-webhook-configuration,verbs=get;list;watch;patch

// Setup adds the webhook server with all webhooks, the maintenance of its certificate and of the
// configurations (OPS-030, OPS-042), and the readiness check webhook-ready (OPS-090). It must be called
// before the manager starts. The manager serves probes and metrics while the first pass is attempted, and
// stops with an error that names the obstacle if that does not succeed in time.
func Setup(ctx context.Context, options Options) error {
	mgr, e := options.Manager, options.Environment
	options.followed = followedIn(e)
	direct, err := client.NewWithWatch(mgr.GetConfig(),
		client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient()})
	if err != nil {
		return fmt.Errorf("making a client for webhook certificates: %w", err)
	}

	kube, err := typedcorev1.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("making a client for template validation: %w", err)
	}

	judge := framework.NewTemplateValidator(kube.RESTClient())
	if options.ForbidPrivileged {
		judge = framework.Unprivileged(judge)
	}

	teller, err := options.teller(mgr)
	if err != nil {
		return err
	}

	chain, disruptions, err := options.podWebhooks(mgr, teller)
	if err != nil {
		return err
	}

	options.guard = protection.New(options.Gates, kube.RESTClient(), teller)
	upkeep := &struct{ framework.Announcer }{} // it is created later from the paths of the handlers
	e.Validator, e.Protect, e.Announcer = judge, options.protects, upkeep
	e.Cache, e.APIReader, e.Writer, e.Mapper = mgr.GetClient(), mgr.GetAPIReader(), direct, mgr.GetRESTMapper()
	e.Namespaces = framework.NewNamespaces(mgr.GetCache(), mgr.GetAPIReader())
	handlers := options.handlers(e, chain, disruptions)
	keeping := options.keeper(handlers)
	options.follow(ctx, &keeping)
	if keeping.Paths[mutatePodRecentPath] {
		keeping.Recent = recentPods(direct)
	}

	checker, err := matchconditions.NewChecker()
	if err != nil {
		return err
	}

	keeping.Check = checker.Check
	keeping.Elected = mgr.Elected()
	keeper := certificate.New(direct, clock.RealClock{}, mgr.GetLogger().WithName("webhook-certificates"),
		keeping)
	upkeep.Announcer = keeper.Publisher
	if err := errors.Join(metrics.Registry.Register(keeper.Metric()),
		metrics.Registry.Register(keeper.Expiry())); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}

	// Usually this pass is sufficient, and the controllers start after it. If it fails, the server tries
	// again and reports why.
	attempt, cancel := context.WithTimeout(ctx, framework.AdmissionTime)
	_, _ = keeper.Pass(attempt)
	cancel()
	callers, err := newCallers(options.ClientCAFile, options.ClientNames)
	if err != nil {
		return err
	}

	server := &server{
		Server:   webhook.NewServer(webhook.Options{}),
		port:     options.Port,
		certDir:  options.CertDir,
		callers:  callers,
		keeper:   keeper,
		timeout:  cmp.Or(options.InitTimeout, time.Minute),
		stopping: options.Stopping,
	}
	for path, handler := range served(handlers,
		&conversionHandler{log: mgr.GetLogger().WithName("conversion"), kinds: options.Kinds}) {
		server.Register(path, handler)
	}

	server.Register("/healthz", http.HandlerFunc(alive))
	if err := mgr.Add(server); err != nil {
		return fmt.Errorf("adding the webhook server: %w", err)
	}
	if err := mgr.AddReadyzCheck("webhook-ready", keeper.Ready); err != nil {
		return fmt.Errorf("adding the readiness check: %w", err)
	}

	return nil
}

// served returns the HTTP handlers by path. Each sort of request has its own memory limit: a request for an
// object may wait for a probing pod, and a request for a pod may wait for the conversion of objects.
func served(handlers map[string]admission.Handler, conversion http.Handler) map[string]http.Handler {
	objects, pods, conversions := newMemoryLimiter(), newMemoryLimiter(), newMemoryLimiter()
	all := map[string]http.Handler{convertPath: conversions.bounded(conversion, maxReview)}
	for path, handler := range handlers {
		of := objects
		if slices.Contains(podPaths, path) {
			of = pods
		}
		all[path] = of.bounded(&admission.Webhook{Handler: sized(handler)}, mostBody)
	}
	return all
}

// handlers returns the admission webhooks by path. pods changes pods, and is nil without the gate
// PodWebhook. disruptions checks disruptions of pods, and is nil if there are no checks.
func (o Options) handlers(
	e *framework.Environment, pods *pod.Chain, disruptions *pod.Disruptions,
) map[string]admission.Handler {
	handlers := map[string]admission.Handler{}
	for i := range o.Kinds {
		maps.Copy(handlers, o.Kinds[i].Handlers(e))
	}

	// The handlers exist even if the gate is off, because entries may exist for a while, or permanently.
	for _, kind := range protection.Kinds {
		handlers[kind.Path] = framework.Limited(o.guard.Handler(kind))
	}

	if pods != nil {
		handlers[mutatePodPath] = mutatePod(pods, true)
		handlers[mutatePodAllPath] = mutatePod(pods, false)
		if rules := o.podRules(); len(rules) > 0 {
			handlers[mutatePodRecentPath] = mutateRecentPod(mutatePod(pods, false), rules...)
		}
	}

	if disruptions != nil {
		guarded := func(namespace string) bool {
			return o.Budgets != nil && len(o.Budgets.Index.In(namespace)) > 0
		}
		handlers[validatePodPath] = validatePod(disruptions, e.APIReader, guarded)
	}

	subjects := o.subjects()
	for path, handler := range handlers {
		handlers[path] = subjects[path].checked(handler)
	}

	return handlers
}

// teller returns the Reporter that reports rejected deletions and disruptions.
func (o Options) teller(mgr manager.Manager) (*protection.Reporter, error) {
	log := mgr.GetLogger().WithName("protection")
	var lines *protectionlog.Log
	if o.Gates.Enabled(features.ResourcesDeletionProtection) || o.Budgets != nil {
		var err error
		if lines, err = protectionlog.Open(o.ProtectionLog, os.Stderr); err != nil {
			log.Info("What is refused is written to stderr", "reason", err.Error())
		}
	}
	teller := protection.NewTeller(reconcile.NewRecorder(mgr.GetEventRecorder("protection")), lines, log,
		time.Now)
	return teller, register(teller.Metrics()...)
}

// podWebhooks returns the chain that changes pods and the checks of their disruptions. Both are nil without
// the gate PodWebhook; the checks are also nil if nothing puts pods into subsets or protects them.
func (o Options) podWebhooks(
	mgr manager.Manager, teller *protection.Reporter,
) (chain *pod.Chain, disruptions *pod.Disruptions, err error) {
	if !o.Pods {
		return nil, nil, nil
	}

	var checks []pod.Check
	var collectors []prometheus.Collector
	var budgets *pod.Budgets
	var spreads *pod.Spreads
	if o.Budgets != nil {
		budgets = &pod.Budgets{
			Guard:  o.Budgets.Guard,
			Cached: mgr.GetClient(),
			Tell:   teller.Disruption,
			Passed: teller.Passed,
		}
		checks = append(checks, budgets.Check())
		collectors = append(collectors, o.Budgets.Guard.Metrics()...)
	}

	if o.Spreads != nil {
		spreads = pod.NewSpreads(pod.SpreadOptions{
			Matcher:   o.Spreads,
			Booker:    o.Spreads.Booker,
			Known:     o.Spreads.Index.Get,
			Versioned: o.Versioned,
			Recorder:  reconcile.NewRecorder(mgr.GetEventRecorder("workloadspread")),
			Log:       mgr.GetLogger().WithName("workloadspread"),
			Now:       time.Now,
		})
		o.Spreads.WhenGone(spreads.Forget)
		checks = append(checks, spreads.Check()) // comes last, because it books what no check rejects
		collectors = append(append(collectors, o.Spreads.Booker.Metrics()...), spreads.Metric())
	}

	sidecars := pod.NewSidecars(o.Sidecars, o.Gates.Enabled(features.EnableSortSidecarContainerByName),
		time.Now)
	var last []pod.Step
	if o.States != nil { // after all steps whose result it needs
		last = append(last, pod.States(o.States))
	}

	chain = newPodChain(o.GateAllPods, spreads, budgets, sidecars,
		append(last, o.probes(mgr.GetClient())...)...)
	if len(checks) > 0 {
		disruptions = pod.NewDisruptions(checks...)
		collectors = append(collectors, disruptions.Metric())
	}

	return chain, disruptions, register(append(collectors, chain.Metric(), sidecars.Metric())...)
}

// newPodChain orders the steps: SidecarSets and budgets select by the labels that subsets add, and steps that
// add containers come before launch priority.
func newPodChain(
	gateAll bool, spreads *pod.Spreads, budgets *pod.Budgets, sidecars *pod.Sidecars, last ...pod.Step,
) *pod.Chain {
	steps := []pod.Step{pod.Gate(gateAll)}
	if spreads != nil {
		steps = append(steps, spreads.Step())
	}
	if sidecars != nil {
		steps = append(steps, sidecars.Step())
	}
	if steps = append(steps, pod.Launch()); budgets != nil {
		steps = append(steps, budgets.Step())
	}
	return pod.NewChain(append(steps, last...)...) // these need all containers and all labels
}

// probes returns the steps for probes that the node daemon or a provider runs.
func (o Options) probes(cached client.Reader) (steps []pod.Step) {
	if o.Gates.Enabled(features.EnhancedLivenessProbe) {
		steps = append(steps, pod.Liveness())
	}
	if o.Gates.Enabled(features.EnablePodProbeMarkerOnServerless) {
		steps = append(steps, pod.Travelling(cached))
	}
	return steps
}

// asksForProbes returns the match condition for the pods that the steps of probes are for.
func (o Options) asksForProbes() admissionv1.MatchCondition {
	expression := "false"
	switch {
	case o.Gates.Enabled(features.EnablePodProbeMarkerOnServerless):
		expression = "true" // it is not known yet where a pod will run
	case o.Gates.Enabled(features.EnhancedLivenessProbe):
		expression = "has(object.metadata.annotations) && '" + pub.UsingEnhancedLiveness +
			"' in object.metadata.annotations"
	}
	return condition("of-probes", expression)
}

func register(collectors ...prometheus.Collector) error {
	for _, c := range collectors {
		if err := metrics.Registry.Register(c); err != nil {
			return fmt.Errorf("registering metrics: %w", err)
		}
	}
	return nil
}

// follow passes the scopes of SidecarSets, WorkloadSpreads and PersistentPodStates to the keeper, and makes
// it update them when they change.
func (o Options) follow(ctx context.Context, keeping *certificate.Options) {
	if !o.Pods {
		return
	}

	rules := o.podRules()
	var changes []<-chan struct{}
	for _, of := range rules {
		changes = append(changes, of.Changed())
	}
	if o.Budgets != nil {
		changes = append(changes, o.Budgets.Changed())
	}

	o.scopeDisruptions(keeping)
	keeping.Rescope = either(ctx, changes)
	keeping.Scopes[mutatePodAllName] = configuration.Scope{
		Policy: admissionv1.Fail,
		Conditions: func() ([]admissionv1.MatchCondition, bool) {
			var asked []admissionv1.MatchCondition
			for _, of := range rules {
				if !of.Synced() {
					return nil, false
				}
				asked = append(asked, condition("of-"+strings.ToLower(of.Plural()), of.Creations()))
			}
			return otherPods(o.GateAllPods, append(asked, o.asksForProbes())...), true
		},
	}
}

// either returns a channel that receives a value when any of the channels does.
func either(ctx context.Context, channels []<-chan struct{}) <-chan struct{} {
	joined := make(chan struct{}, 1)
	for _, from := range channels {
		go func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-from:
				}
				select {
				case joined <- struct{}{}:
				default: // a value is already pending
				}
			}
		}()
	}

	return joined
}

func (o Options) keeper(handlers map[string]admission.Handler) certificate.Options {
	paths := map[string]bool{}
	for _, path := range podPaths { // off unless there is a handler
		paths[path] = false
	}

	for path := range handlers {
		paths[path] = true
	}

	for _, kind := range protection.Kinds { // no entries without the gate
		paths[kind.Path] = o.Gates.Enabled(features.ResourcesDeletionProtection)
	}

	return certificate.Options{
		Secret:      types.NamespacedName{Namespace: o.Namespace, Name: o.SecretName},
		Directory:   o.CertDir,
		FilesOnly:   o.FilesOnly,
		RenewBefore: cmp.Or(o.RenewBefore, certificate.DefaultRenewBefore),
		ServerPort:  o.Port,
		Options: configuration.Options{
			External: o.External,
			Target: configuration.Target{
				Namespace: o.Namespace,
				Service:   o.ServiceName,
				Host:      o.Host,
				Port:      o.Port,
			},
			Mutating:   mutatingConfiguration,
			Validating: validatingConfiguration,
			Paths:      paths,
			Scopes: map[string]configuration.Scope{mutatePodAllName: {
				Policy: admissionv1.Fail,
				Conditions: func() ([]admissionv1.MatchCondition, bool) {
					return otherPods(o.GateAllPods, o.asksForProbes()), true
				},
			}},
			Derived: append([]configuration.Derived{{
				Kind: "MutatingWebhookConfiguration",
				From: mutatePodName,
				Name: mutatePodAllName,
				Path: mutatePodAllPath,
			}}, o.derivedDisruptions()...),
			CRDs: o.converted(),
		},
	}
}

// converted returns the CRDs of the kinds that are converted here.
func (o Options) converted() (definitions []string) {
	for i := range o.Kinds {
		if o.Kinds[i].Conversion != nil {
			definitions = append(definitions, o.Kinds[i].Definition())
		}
	}
	return definitions
}

func alive(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }
