package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
	apimachineryversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/afloat-project/afloat/internal/admission"
	"github.com/afloat-project/afloat/internal/admission/certificate"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/platform/features"
	"github.com/afloat-project/afloat/internal/pods/sidecarset/inject"
)

// addWebhooks serves admission and conversion; on every replica, leader or not (OPS-032). stopping is closed when the manager is asked to end.
func addWebhooks(ctx context.Context, mgr ctrl.Manager, o *options, gates *features.Gates, qualifies inplace.Options, sidecars *inject.Watch, spreads *spreads, stopping <-chan struct{}) error {
	minor, err := serverMinor(ctx, mgr.GetConfig())
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
		ClientCAFile:         o.webhookClientCAFile,
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
	options.Sidecars, options.Listed, options.Spreads, options.Versioned = sidecars, spreads.listed, spreads.watch, spreads.versioned
	if o.renewBefore != "" {
		renewBefore, err := certificate.ParseRenewBefore(o.renewBefore)
		if err != nil {
			return fmt.Errorf("CERTS_RENEW_BEFORE: %w", err)
		}
		options.RenewBefore = renewBefore
	}
	return admission.Setup(ctx, mgr, options)
}

// serverMinor is the minor version of Kubernetes 1. It is 0, which every feature is newer than, if the server says nothing that can be read
// (OPS-033).
func serverMinor(ctx context.Context, cfg *rest.Config) (uint, error) {
	client, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return 0, fmt.Errorf("discovery: %w", err)
	}
	text, err := client.RESTClient().Get().AbsPath("/version").Do(ctx).Raw()
	if err != nil {
		return 0, fmt.Errorf("asking for the version of the server: %w", err)
	}
	var info apimachineryversion.Info
	if err := json.Unmarshal(text, &info); err == nil {
		if parsed, err := version.ParseGeneric(info.GitVersion); err == nil && parsed.Major() == 1 {
			return parsed.Minor(), nil
		}
		if minor, err := strconv.ParseUint(strings.TrimRight(info.Minor, "+"), 10, 16); err == nil && info.Major == "1" {
			return uint(minor), nil
		}
	}
	ctrl.Log.Info("The version of the server cannot be read: features of newer ones are not used", "version", string(text))
	return 0, nil
}
