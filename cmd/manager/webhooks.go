package main

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/afloat-project/afloat/internal/admission"
	"github.com/afloat-project/afloat/internal/admission/certificate"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/platform/features"
)

// addWebhooks serves admission and conversion; on every replica, leader or not (OPS-032). stopping is closed when the manager is asked to end.
func addWebhooks(ctx context.Context, mgr ctrl.Manager, o *options, gates *features.Gates, qualifies inplace.Options, spreads *spreads, stopping <-chan struct{}) error {
	minor, err := serverMinor(mgr.GetConfig())
	if err != nil {
		return err
	}
	options := admission.Options{
		Namespace:            o.installNamespace,
		SecretName:           o.secretName,
		ServiceName:          o.serviceName,
		Host:                 o.webhookHost,
		FilesOnly:            o.filesOnly(),
		External:             gates.Enabled(features.EnableExternalCerts),
		ForbidPrivileged:     !o.allowPrivileged,
		ProtectDeletion:      gates.Enabled(features.ResourcesDeletionProtection),
		Port:                 o.webhookPort,
		CertDir:              o.certDir,
		Stopping:             stopping,
		InitTimeout:          o.webhookInitTimeout,
		TemplateDefaults:     !gates.Enabled(features.TemplateNoDefaults),
		InPlace:              qualifies,
		Daemon:               gates.Enabled(features.KruiseDaemon),
		PullJobs:             gates.Enabled(features.ImagePullJobGate),
		Pods:                 gates.Enabled(features.PodWebhook),
		GateAllPods:          gates.Enabled(features.KruisePodReadinessGate),
		NativeSidecars:       minor >= 28,
		NativeSidecarUpdates: minor >= 29 && gates.Enabled(features.SidecarSetInPlaceUpdateNativeSidecar),
		AllSidecarMetadata:   gates.Enabled(features.SidecarSetPatchPodMetadataDefaultsAllowed),
		SortSidecars:         gates.Enabled(features.EnableSortSidecarContainerByName),
		WorkloadSpreads:      gates.Enabled(features.WorkloadSpread),
		UnschedulableWindow:  o.unschedulableWindow,
		HostPorts:            gates.Enabled(features.DefaultHostNetworkHostPortsInPodTemplates),
	}
	options.Listed, options.Spreads, options.Versioned = spreads.listed, spreads.watch, spreads.versioned
	if o.renewBefore != "" {
		renewBefore, err := certificate.ParseRenewBefore(o.renewBefore)
		if err != nil {
			return fmt.Errorf("CERTS_RENEW_BEFORE: %w", err)
		}
		options.RenewBefore = renewBefore
	}
	return admission.Setup(ctx, mgr, options)
}

// serverMinor is the minor version of Kubernetes 1.
func serverMinor(cfg *rest.Config) (uint, error) {
	client, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return 0, fmt.Errorf("discovery: %w", err)
	}
	info, err := client.ServerVersion()
	if err != nil {
		return 0, fmt.Errorf("asking for the version of the server: %w", err)
	}
	parsed, err := version.ParseGeneric(info.GitVersion)
	if err != nil {
		return 0, fmt.Errorf("the version of the server: %w", err)
	}
	return parsed.Minor(), nil
}
