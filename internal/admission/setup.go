package admission

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/afloat-project/afloat/internal/admission/certificate"
)

// Names of the shipped objects (OPS-060), and the CRDs that are converted (OPS-070).
const (
	mutatingConfiguration   = "kruise-mutating-webhook-configuration"
	validatingConfiguration = "kruise-validating-webhook-configuration"
)

var convertedCRDs = []string{"clonesets.apps.kruise.io"}

// Options of the webhook server. Port and CertDir must be those of the manager's webhook server.
type Options struct {
	// Namespace is the install namespace, SecretName and ServiceName the objects in it.
	Namespace, SecretName, ServiceName string
	// Host, if not empty, is called instead of the Service (WEBHOOK_HOST); FilesOnly keeps the certificates in CertDir alone
	// (WEBHOOK_CERT_WRITER=fs).
	Host      string
	FilesOnly bool
	Port      int
	CertDir   string
	// RenewBefore is how long before its end a certificate is replaced; zero is certificate.DefaultRenewBefore.
	RenewBefore time.Duration
	// InitTimeout is how long the first pass may take; zero is 60 s (OPS-042).
	InitTimeout time.Duration
	// TemplateDefaults is off with gate TemplateNoDefaults; HostPorts is gate DefaultHostNetworkHostPortsInPodTemplates (CS-014).
	TemplateDefaults, HostPorts bool
}

// Reading and writing only by name (OPS-080, OPS-082). A create cannot be limited to a name.
//
// +kubebuilder:rbac:groups="",namespace=kruise-system,roleName=kruise-webhook-role,resources=secrets,verbs=create
// +kubebuilder:rbac:groups="",namespace=kruise-system,roleName=kruise-webhook-role,resources=secrets,resourceNames=kruise-webhook-certs,verbs=get;list;watch;update
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,roleName=kruise-certs-role,resources=mutatingwebhookconfigurations,resourceNames=kruise-mutating-webhook-configuration,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,roleName=kruise-certs-role,resources=validatingwebhookconfigurations,resourceNames=kruise-validating-webhook-configuration,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=apiextensions.k8s.io,roleName=kruise-certs-role,resources=customresourcedefinitions,resourceNames=clonesets.apps.kruise.io,verbs=get;list;watch;patch

// Setup registers all webhooks at the manager's webhook server, makes the first pass over certificates and configurations (OPS-030,
// OPS-042), and adds their upkeep and the readiness check webhook-ready (OPS-090). It must be called before the manager starts, and
// returns an error that names the obstacle if the first pass does not succeed in time.
func Setup(ctx context.Context, mgr manager.Manager, options Options) error {
	direct, err := client.NewWithWatch(mgr.GetConfig(), client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient()})
	if err != nil {
		return fmt.Errorf("making a client for webhook certificates: %w", err)
	}
	clientset, err := kubernetes.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("making a client for template validation: %w", err)
	}
	handlers := admissionHandlers(&cloneSetWebhooks{
		judge:            NewTemplateJudge(clientset.CoreV1().RESTClient()),
		pods:             mgr.GetClient(),
		templateDefaults: options.TemplateDefaults,
		hostPorts:        options.HostPorts,
	})
	server := mgr.GetWebhookServer()
	keeper := certificate.New(direct, clock.RealClock{}, mgr.GetLogger().WithName("webhook-certificates"), options.keeper(handlers))
	if err := keeper.First(ctx, options.initTimeout()); err != nil {
		return err
	}
	for path, handler := range handlers {
		server.Register(path, &admission.Webhook{Handler: handler})
	}
	server.Register(convertPath, &conversionHandler{log: mgr.GetLogger().WithName("conversion")})
	server.Register("/healthz", http.HandlerFunc(alive))
	if err := mgr.Add(keeper); err != nil {
		return fmt.Errorf("adding the upkeep of webhook certificates: %w", err)
	}
	if err := mgr.AddReadyzCheck("webhook-ready", keeper.Ready); err != nil {
		return fmt.Errorf("adding the readiness check: %w", err)
	}
	return nil
}

// admissionHandlers are the admission webhooks by path.
func admissionHandlers(cloneSets *cloneSetWebhooks) map[string]admission.Handler {
	return map[string]admission.Handler{
		mutateCloneSetPath:   admission.HandlerFunc(cloneSets.mutate),
		validateCloneSetPath: admission.HandlerFunc(cloneSets.validate),
	}
}

func (o Options) keeper(handlers map[string]admission.Handler) certificate.Options {
	renewBefore := o.RenewBefore
	if renewBefore == 0 {
		renewBefore = certificate.DefaultRenewBefore
	}
	paths := make([]string, 0, len(handlers))
	for path := range handlers {
		paths = append(paths, path)
	}
	return certificate.Options{
		Secret:      types.NamespacedName{Namespace: o.Namespace, Name: o.SecretName},
		Directory:   o.CertDir,
		FilesOnly:   o.FilesOnly,
		Target:      certificate.Target{Namespace: o.Namespace, Service: o.ServiceName, Host: o.Host, Port: o.Port},
		RenewBefore: renewBefore,
		Mutating:    mutatingConfiguration,
		Validating:  validatingConfiguration,
		Paths:       paths,
		CRDs:        convertedCRDs,
		ServerPort:  o.Port,
	}
}

func (o Options) initTimeout() time.Duration {
	if o.InitTimeout == 0 {
		return time.Minute
	}
	return o.InitTimeout
}

func alive(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }
