# ruff: noqa: E501  (one file, one line)
"""SHA-256 of published recordings, to detect damaged or modified copies."""

BROAD = {
    "01_undisturbed_slow_rotation_A": "ad2cec0390a279953084e1de12dfd8d542af55e4ea187e68e8ebb7c316ecb96b",
    "06_undisturbed_fast_rotation_A": "61cb32774b40c33d16a172dbe06503b4a3cb0b2d3e9b8eae0df66c313506a8e2",
    "08_undisturbed_fast_rotation_with_breaks_A": "18f754d90fc4442dd9b01e116bf2b763d71517098702d77096080657a9460fd3",
    "12_undisturbed_slow_translation_C": "4d17e66737ecbbde3ab753e459d72c8f0a619750802f6fdbbd0e7f0c0e2551e8",
    "16_undisturbed_fast_translation_B": "fc97a89ca41c03b7f86793c20d8ce208fe085f8a1cc6e956cce03ebf3fa57c54",
    "21_undisturbed_fast_combined": "cb7be66ffc50d7d2b23abaf72a85a76925ea2db36a3fd575998811fcf68c219a",
    "24_disturbed_tapping_A": "1246fed1680a882a5f4d0dc2ae16e2db9dc90281fbaf1d486c84db1f27db51fa",
    "25_disturbed_tapping_B": "38326275bd24d350ce188e8621b42e0598e2cc6b5f7eb8c652052afb8f4ae887",
    "26_disturbed_phone_vibration_A": "545dda7c8b00548cfa476d53fa7e520bfae98f40ad2dac1b5686f5fda5117735",
    "27_disturbed_phone_vibration_B": "981473c114256006d74c7513c6482a85ba2df7b4ede8d838a8cc755e17e3009c",
}
""".mat files of the official repository; the checksums of the other trials are not known."""

EUROC = {
    "MH_01_easy/mav0/imu0/data.csv": "226470999dc8ba758c838982fd7eb2bc9f3f2b489e85a38d0ecf8b9d40785a5b",
    "MH_03_medium/mav0/imu0/data.csv": "5defd7c9770344df34ebbd5805264341f8a4920c13a22e1b9ef8607168cad02e",
    "MH_04_difficult/mav0/imu0/data.csv": "330c25e4532c1f27853d0eeee06968d5c4c00c16be1187fdcfd909cfe060360c",
    "MH_04_difficult/mav0/state_groundtruth_estimate0/data.csv": "c13de3d5ba9ead60688505d4773286c290fa642264943c88aa182d0eac9f4960",
    "MH_05_difficult/mav0/imu0/data.csv": "e6498fb86f0b618abb07b256b1822957bb4bcf158d07cc82d3b43ca8166ec004",
    "MH_05_difficult/mav0/state_groundtruth_estimate0/data.csv": "da13e5dcb3d5fc2f12c4e8bfae10dd380d765150be3312f989b0bc5550965451",
    "V1_01_easy/mav0/imu0/data.csv": "4cef78a5cf7c8ee52016a160de4b50184da2a216d615feb7ebbbb3bc99efa89e",
    "V1_02_medium/mav0/imu0/data.csv": "51804ce6362dc200fff3ed6a3aba1df769528badf1a877d19d5cac976a544c09",
    "V1_02_medium/mav0/state_groundtruth_estimate0/data.csv": "fed415eee44313584b9c4f61010dac146d5e4a4a35301db25b1ecd7d4d91b5f0",
    "V1_03_difficult/mav0/imu0/data.csv": "543835f7b7dd9d1287c9052955e030ade113c51dc97ec2c15d13a318521ad0d7",
    "V1_03_difficult/mav0/state_groundtruth_estimate0/data.csv": "703ba51a854daba80f20df93e76605c2278b3f227afe2bcbe9eb4255186fc3d9",
    "V2_01_easy/mav0/imu0/data.csv": "d8df41e85c12761104043264a61054ad4bfa19087886e847f4e0412a19cd1633",
    "V2_01_easy/mav0/state_groundtruth_estimate0/data.csv": "315807fd7d91868ed6085a3d8fde40315842135f13199ed83e2e6270eb5b5126",
    "V2_02_medium/mav0/imu0/data.csv": "7f1028007d030a38e5c7e2cee19ca773015b2fecbbbe80794f5c34e900b2ee8e",
    "V2_02_medium/mav0/state_groundtruth_estimate0/data.csv": "019ec178d0d2636dca66808f6422ae835b24f14184c54823b3a4a47bf187be2d",
    "V2_03_difficult/mav0/imu0/data.csv": "55911f078feea76eb5bdeb97c9ebbebb679de39c4dd44c50e81064d5d8cf77f6",
    "V2_03_difficult/mav0/state_groundtruth_estimate0/data.csv": "2c273cf35909c4ca7786137cf63f04cf292ca13da48c406c72b8e96a2b1372e5",
}
"""Official tables; those not listed were available only as truncated or edited copies."""

DIDO = {
    "circle_a_1.5_v_2.5_r_1.5_2022-02-21-23-46-22/groundTruthPoses.csv": "4c0cb10ef5d7e57105ee5ec0ce555a6928f3b69a7d3fda8f8a412e99c1aa1b7b",
    "circle_a_1.5_v_2.5_r_1.5_2022-02-21-23-46-22/imu_data.csv": "82f6f4445007413586415f05345cca65565e785b6ef20962aa02f665b0d26944",
    "circle_a_1.5_v_2.5_r_1.5_yaw_2022-02-21-23-27-28/groundTruthPoses.csv": "f86e16be78fbe80b37f266cdbaaee0f353b517041c5643f5f205c9970d7e81a1",
    "circle_a_1.5_v_2.5_r_1.5_yaw_2022-02-21-23-27-28/imu_data.csv": "4e0f3df5fda9c7fbd4cb927537ccfc5802f2ec3bd3ef9ea00a47fa905340be1a",
    "circle_a_2.2_v_3.5_r_1.5_yaw_2022-02-21-23-18-26/groundTruthPoses.csv": "791fbec2c2f8e3d907b246e59304c43ee7ff5f3fae44e87d634d248a96e12f0b",
    "circle_a_2.2_v_3.5_r_1.5_yaw_2022-02-21-23-18-26/imu_data.csv": "4ef04d1a84e38144110d22024227dbc1cd81d0e50b1823cb0511c2d9dcbd19db",
    "eight_a_1.5_v_2.5_rx_1.8_2022-02-22-11-45-31/groundTruthPoses.csv": "a9bb9f24d918ddac0ddd4202cac25ccf08c4698cb82c20ebc4a803eb193368d7",
    "eight_a_1.5_v_2.5_rx_1.8_2022-02-22-11-45-31/imu_data.csv": "df251d8119d3659dea42c1309ad4a97b8e58f5e1fa10aaeaaf061fd3e30942a2",
    "eight_a_2.2_v_3.5_rx_1.8_2022-02-22-11-50-24/groundTruthPoses.csv": "e6ecbc35e0e944c64695aa9ac823a6fc8f5f1f379f63bad4dbe39bd10c608f75",
    "eight_a_2.2_v_3.5_rx_1.8_2022-02-22-11-50-24/imu_data.csv": "ff5d67f84591a91a811fabae470ab441322a17f26165c635914145ab211169a1",
    "random_a_1.5_v_2.5_n_2_yaw_2022-02-22-13-39-38(0)/groundTruthPoses.csv": "e9cde02d301e436d9117f373a11931e7ca950fcc8cbe26d2f4571170a6fe63a4",
    "random_a_1.5_v_2.5_n_2_yaw_2022-02-22-13-39-38(0)/imu_data.csv": "417ce940e4bc3f058b998767d19205cbc4be57339477d349ea4fd21a303f6245",
    "random_a_1.5_v_2.5_n_2_yaw_2022-02-22-13-39-38(1)/groundTruthPoses.csv": "78443cf79086b6ce3948a53d562d66158712da393c36ed5e55d320dfa4bea3a3",
    "random_a_1.5_v_2.5_n_2_yaw_2022-02-22-13-39-38(1)/imu_data.csv": "3a1a714abac1d0be898628c93906c6b9dc7daff095184aff1b88f08fff6b73ae",
    "random_a_2.2_v_3.5_n_2_2022-02-22-13-45-56(0)/groundTruthPoses.csv": "048a0506ab8c5210d186ffb60c640146b6ba5591e36bc4c22173dcf49d7141b4",
    "random_a_2.2_v_3.5_n_2_2022-02-22-13-45-56(0)/imu_data.csv": "2602f9569d027195f3622bb3cb69d27bdef85d7a1c7407a5e53efae047e15f7a",
    "random_a_2.2_v_3.5_n_2_2022-02-22-13-45-56(1)/groundTruthPoses.csv": "82eb0baca797a84fecb1503189eefbd46fc759cf87215d16173b79432061253b",
    "random_a_2.2_v_3.5_n_2_2022-02-22-13-45-56(1)/imu_data.csv": "c416aba4d294df29dc731047e83c1a483f7dd9438241eed951e75541566d341c",
    "random_a_2.2_v_3.5_n_2_yaw_2022-02-22-13-50-52(0)/groundTruthPoses.csv": "500a1ab907efbb8f9207754a1809976c4ccaccc314ccc60532d11bd6da1653e7",
    "random_a_2.2_v_3.5_n_2_yaw_2022-02-22-13-50-52(0)/imu_data.csv": "a346825f715ee3df125570f452f12cbd373237b19d5316e0394079c393af91ab",
    "random_a_2.2_v_3.5_n_2_yaw_2022-02-22-13-50-52(1)/groundTruthPoses.csv": "d7dfb773c453a47f3fcb80690dfc71c623ba9f620775d8be108a805ca4371f5a",
    "random_a_2.2_v_3.5_n_2_yaw_2022-02-22-13-50-52(1)/imu_data.csv": "982e22080933babaa8d40fe738fe4dbf870f556043b4c47bc74760998dadd824",
    "updown_circle_a_0.7_v_1.5_r_1.5_2022-02-21-22-39-05/groundTruthPoses.csv": "12b895e667e144726e82885c99205f0a4660af06b40b990bc5bc3200df3487c1",
    "updown_circle_a_0.7_v_1.5_r_1.5_2022-02-21-22-39-05/imu_data.csv": "f195726235eeed5547f3466641a3605a2639123be92a816f5ac8ab618ef4cf77",
    "updown_circle_a_1.5_v_2.5_r_1.5_2022-02-21-23-00-58/groundTruthPoses.csv": "6a92bb1538983f69fb779699a3491af226a4b6df86619f9e559dd4a9fdd1748b",
    "updown_circle_a_1.5_v_2.5_r_1.5_2022-02-21-23-00-58/imu_data.csv": "6add0b6b3862f2659cc75d85c0638ecff61d030078abecbe05eff9a37d730286",
    "updown_circle_a_2.2_v_3.5_r_1.5_2022-02-21-23-12-49/groundTruthPoses.csv": "a0cf4041d82ff14c935644aeb8141904dfeea12f2628e958fa85c97ecc9d8e3b",
    "updown_circle_a_2.2_v_3.5_r_1.5_2022-02-21-23-12-49/imu_data.csv": "5dac244d90a95ce183f9d772a7cf4b3dedca1e1d24e9854122b346929f32b4a2",
    "updowneight_a_1.5_v_2.5_rx_1.8_2022-02-22-12-22-14/groundTruthPoses.csv": "f66c9f43e8c531e4080aa33520d4c37dd4c085f4f615196f3773be484dcc5e41",
    "updowneight_a_1.5_v_2.5_rx_1.8_2022-02-22-12-22-14/imu_data.csv": "047be77d768147060bd7305b13981cc15d5806ba87302b37d1ddb3cefdee49e5",
    "updowneight_a_2.2_v_3.5_rx_1.8_2022-02-22-12-11-40/groundTruthPoses.csv": "7fd39af008fb6baac13e7f0fc60809bbc17d6ef0f44d20dfda0f9b1b20fb1aa6",
    "updowneight_a_2.2_v_3.5_rx_1.8_2022-02-22-12-11-40/imu_data.csv": "468c926d2b9deec235351a00a85669aa2962b0dc5e6fe742be5e80b0615365d7",
}
"""Tables converted from the official HDF5 files."""

UIPDB = {
    "processed_04_session1_1.npz": "67b1141b862be8b3f30e12ced9809937b3e5fbaf9b2be5a07b339e4e3fb34160",
    "processed_04_session1_freestyle.npz": "ecc64967052bfdf6cffa83d489b9b4d3bfd67bbc44730a2c8f00fc399288b2b0",
    "processed_05_session1_1.npz": "7827a231e631e2d4438b16133a28f1a3a071b624311a6db3c33c3ed946e7178a",
    "processed_05_session1_2.npz": "ae68c066a10d35b078bb2d06962268f7209691c5029a567d5534f00310b77259",
    "processed_05_session1_freestyle.npz": "b2895a8ef8cfd38c6be19cee5fb64ccbfe41313064613f832e0530981e232fb4",
    "processed_05_session2_1.npz": "3eec1dff6e228df48306d0df99bdfe74faa0be36852846ebac555343a9062c7f",
    "processed_06_session1_freestyle.npz": "bd9aaa8a3bcafe2cb6109b06ebfd376bf679d10f4354a0e7a10af35825b08193",
    "processed_06_session2_0.npz": "4dceeb41f62b3d530941025f2f2219b3e0ddc330e5012f176730e55484ee501d",
    "processed_06_session2_1.npz": "6058747bad2e85adeddb33076f6b3f0627b00f94ca75457352a590016a0fa605",
    "processed_07_session1_1.npz": "7d1dc55380e668672aeaf2b36e10a2c5830c2686450a56818af2b52565f17f25",
    "processed_07_session2_1.npz": "aa66dce6045c232f6ebef39dc0a509a576cdd6af10dbcfbcd14279481ce45fa0",
    "processed_09_session1_freestyle.npz": "65ccbca570e47cf209a09adcce55ba2c29890e8a8a8d736a9f66fed73f91af4e",
}
"""Sessions of two sensors and all ranges."""
